"""From an address to what captures it."""

from __future__ import annotations

from headwater.capture.runner import Capture
from headwater.capture.spec import MYSQL, CaptureSpec
from headwater.errors import BadCapture
from headwater.log.protocol import Log


def capture_of(spec: CaptureSpec, log: Log) -> Capture:
    if spec.url.startswith("sqlite:"):
        from headwater.capture.sqlite.capture import SqliteCapture

        return SqliteCapture(spec, log)
    try:
        if spec.url.startswith(MYSQL):
            from headwater.capture.mysql.capture import MysqlCapture

            return MysqlCapture(spec, log)
        from headwater.capture.postgres.capture import PostgresCapture

        return PostgresCapture(spec, log)
    except ModuleNotFoundError as error:
        extra = "mysql,postgres" if spec.url.startswith(MYSQL) else "postgres"
        raise BadCapture(
            what=f"such a database is captured with the package {error.name!r}, which is not installed",
            do=f"Install it: pip install 'headwater[{extra}]'",
        ) from None
