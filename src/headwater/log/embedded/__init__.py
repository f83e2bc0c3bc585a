"""The `file:` backend: a table of chunks. The catalog (SQLite) lists chunks; chunks are immutable Arrow."""

from headwater.log.embedded.log import EmbeddedLog

__all__ = ["EmbeddedLog"]
