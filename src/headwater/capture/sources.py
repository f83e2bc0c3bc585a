"""From an address to what captures it."""

from __future__ import annotations

from headwater.capture.feeds.spec import STATSD, TAIL, FeedSpec, StatsdSettings, TailSettings, feed_of
from headwater.capture.runner import Capture
from headwater.capture.spec import MESSAGES, MYSQL, SQLITE, CaptureSettings, CaptureSpec, Tables, topics_of
from headwater.errors import BadCapture
from headwater.log.protocol import Log
from headwater.log.topic import Topic

Given = CaptureSettings | StatsdSettings | TailSettings | None
Into = str | Topic | None


def spec_of(name: str, url: str, *, tables: Tables, into: Into, settings: Given) -> CaptureSpec | FeedSpec:
    """Databases have tables, each with a topic; a feed goes into one."""
    if url.startswith((STATSD, TAIL)):
        if tables:
            raise BadCapture(what=f"capture {name!r}: {url} has no tables", do="Say into='...' instead")
        return feed_of(name, url, into, settings)
    if into is not None:
        raise BadCapture(what=f"capture {name!r}: into= is for statsd: and tail:", do="Say tables=[...] instead")
    if settings is not None and not isinstance(settings, CaptureSettings):
        what = f"capture {name!r} has settings of another kind: {type(settings).__name__}"
        raise BadCapture(what=what, do="Give hw.CaptureSettings(...)")
    return CaptureSpec(name, url, topics_of(tables), settings or CaptureSettings())


def capture_of(spec: CaptureSpec | FeedSpec, log: Log) -> Capture:
    if isinstance(spec, FeedSpec):
        from headwater.capture.feeds.statsd import StatsdCapture
        from headwater.capture.feeds.tail import TailCapture

        return StatsdCapture(spec, log) if spec.url.startswith(STATSD) else TailCapture(spec, log)
    if spec.url.startswith(MESSAGES):
        from headwater.capture.envelopes.capture import EnvelopeCapture

        return EnvelopeCapture(spec, log)
    try:
        return _logged(spec, log) if spec.settings.poll is None else _polled(spec, spec.settings.poll, log)
    except ModuleNotFoundError as error:
        extra = "mysql" if spec.url.startswith(MYSQL) else "postgres"
        raise BadCapture(
            what=f"such a database is captured with the package {error.name!r}, which is not installed",
            do=f"Install it: pip install 'headwater[{extra}]'",
        ) from None


def _logged(spec: CaptureSpec, log: Log) -> Capture:
    if spec.url.startswith(SQLITE):
        from headwater.capture.sqlite.capture import SqliteCapture

        return SqliteCapture(spec, log)
    if spec.url.startswith(MYSQL):
        from headwater.capture.mysql.capture import MysqlCapture

        return MysqlCapture(spec, log)
    from headwater.capture.postgres.capture import PostgresCapture

    return PostgresCapture(spec, log)


def _polled(spec: CaptureSpec, by: str, log: Log) -> Capture:
    from headwater.capture.polling.capture import PollCapture

    if spec.url.startswith(SQLITE):
        from headwater.capture.polling.sqlite import SqlitePolled

        return PollCapture(spec, log, SqlitePolled(spec, by))
    if spec.url.startswith(MYSQL):
        what = f"capture {spec.name!r}: tables of MySQL and MariaDB are not polled"
        raise BadCapture(what=what, do="Leave out poll=: their binlog tells every change")
    from headwater.capture.polling.postgres import PostgresPolled

    return PollCapture(spec, log, PostgresPolled(spec, by))
