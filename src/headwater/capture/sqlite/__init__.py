"""SQLite: triggers write down what changes, in the same transaction."""
