"""PostgreSQL: an exported snapshot, then logical decoding with `pgoutput`."""
