"""From an address to what captures it."""

from __future__ import annotations

from headwater.capture.runner import Capture
from headwater.capture.spec import MESSAGES, CaptureSpec
from headwater.errors import BadCapture
from headwater.log.protocol import Log


def capture_of(spec: CaptureSpec, log: Log) -> Capture:
    if spec.url.startswith(MESSAGES):
        from headwater.capture.envelopes.capture import EnvelopeCapture

        return EnvelopeCapture(spec, log)
    if spec.url.startswith("sqlite:") and spec.settings.poll is not None:
        from headwater.capture.polling.capture import PollCapture
        from headwater.capture.polling.sqlite import SqlitePolled

        return PollCapture(spec, log, SqlitePolled(spec, spec.settings.poll))
    if spec.url.startswith("sqlite:"):
        from headwater.capture.sqlite.capture import SqliteCapture

        return SqliteCapture(spec, log)
    try:
        from headwater.capture.postgres.capture import PostgresCapture
    except ModuleNotFoundError as error:
        raise BadCapture(
            what=f"PostgreSQL is captured with the package {error.name!r}, which is not installed",
            do="Install it: pip install 'headwater[postgres]'",
        ) from None
    if spec.settings.poll is not None:
        from headwater.capture.polling.capture import PollCapture
        from headwater.capture.polling.postgres import PostgresPolled

        return PollCapture(spec, log, PostgresPolled(spec, spec.settings.poll))
    return PostgresCapture(spec, log)
