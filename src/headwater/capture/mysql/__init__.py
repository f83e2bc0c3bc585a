"""MySQL and MariaDB, by their row-based binlog."""
