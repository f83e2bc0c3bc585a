"""Where a view is to be served to, as a user says it: `view.serve(to=...)` takes these, or addresses that mean them.

Nothing is opened before the app runs, and nothing here imports a client. `name` is what messages show: no secrets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import ClassVar, TextIO
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from headwater.errors import BadStore
from headwater.serve.store import Served, Target
from headwater.serve.stores.addresses import Allowed
from headwater.serve.stores.mail import Server
from headwater.serve.stores.secrets import shown
from headwater.serve.stores.webhook import WebhookMessenger

HOLD_ROWS = 50_000_000


@dataclass(frozen=True)
class Destination:
    _: KW_ONLY
    hold_rows: int = HOLD_ROWS
    """So many records the log keeps for a store that does not take them; one that is further behind is filled anew."""
    pace_s: ClassVar[float] = 0.0
    """At least so long from one apply to the next."""
    from_end: ClassVar[bool] = False
    """Only what changes from now on is of interest."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    def open(self, served: Served) -> Target:
        raise NotImplementedError

    def file(self, served: Served, kind: str) -> Path:
        """In the app's folder: the same for all versions of a view."""
        return served.folder / f"{served.view}.{hashlib.sha256(self.name.encode()).hexdigest()[:12]}.{kind}"


@dataclass(frozen=True)
class Postgres(Destination):
    """`url` as libpq has it. The table is called like the view, unless it is told otherwise."""

    url: str = field(repr=False)
    table: str | None = None
    schema: str = "public"

    @property
    def name(self) -> str:
        return shown(self.url) + (f"?table={self.table}" if self.table else "")

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.postgres import PostgresStore
        from headwater.serve.stores.postgres_table import Table

        return PostgresStore(self.url, Table(self.schema, self.table or served.view), served, name=self.name)


@dataclass(frozen=True)
class Redis(Destination):
    """`prefix` of the keys: the view's name, unless it is told otherwise."""

    url: str = field(repr=False)
    prefix: str | None = None

    @property
    def name(self) -> str:
        return shown(self.url) + (f"?prefix={self.prefix}" if self.prefix else "")

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.redis import RedisStore

        return RedisStore(self.url, self.prefix or served.view, served, name=self.name)


@dataclass(frozen=True)
class DuckDB(Destination):
    path: str | Path
    table: str | None = None

    @property
    def name(self) -> str:
        return f"duckdb:{self.path}" + (f"?table={self.table}" if self.table else "")

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.duckdb import DuckDBStore

        return DuckDBStore(Path(self.path), self.table or served.view, served, name=self.name)


@dataclass(frozen=True)
class Search(Destination):
    """A full-text index over columns of text; all of them, unless some are named. See `View.search`."""

    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "search:" + ",".join(self.columns)

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.search import SearchStore

        path = served.folder / f"{served.version}.search"
        return SearchStore(path, served, columns=self.columns, name=self.name)


@dataclass(frozen=True)
class Parquet(Destination):
    folder: str | Path
    pace_s: ClassVar[float] = 5.0

    @property
    def name(self) -> str:
        return f"parquet:{self.folder}"

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.parquet import ParquetFolder

        return ParquetFolder(Path(self.folder), served, name=self.name)


@dataclass(frozen=True)
class Delta(Destination):
    folder: str | Path
    pace_s: ClassVar[float] = 5.0

    @property
    def name(self) -> str:
        return f"delta:{self.folder}"

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.delta import DeltaFolder

        return DeltaFolder(Path(self.folder), served, name=self.name)


@dataclass(frozen=True)
class Webhook(Destination):
    """`secret` signs, one or, while it changes, several. Addresses inside of a network and http must be allowed."""

    url: str = field(repr=False)
    secret: str | Sequence[str] = field(repr=False)
    allow_private: bool = False
    allow_http: bool = False
    timeout_s: float = 20.0
    ca_file: str | None = None

    def __post_init__(self) -> None:
        self._messenger()

    @property
    def name(self) -> str:
        """The host: paths of webhooks are often secrets themselves, so their digest stands for them."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname or ''}{port}/#{hashlib.sha256(self.url.encode()).hexdigest()[:8]}"

    def _messenger(self) -> WebhookMessenger:
        secrets = [self.secret] if isinstance(self.secret, str) else list(self.secret)
        allowed = Allowed(private=self.allow_private, http=self.allow_http)
        return WebhookMessenger(
            self.url, secrets, name=self.name, allowed=allowed, timeout_s=self.timeout_s, ca_file=self.ca_file
        )

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.outbox import Outbox

        outbox = Outbox(self.file(served, "outbox"), served, self._messenger(), name=self.name)
        outbox.start()
        return outbox


@dataclass(frozen=True)
class Email(Destination):
    """Mails from `sender`, handed to `server`. Only what changes after the first start is told."""

    to: str
    sender: str
    server: Server = field(default=Server("localhost"), repr=False)
    from_end: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for address in (self.to, self.sender):
            if "@" not in address or any(sign in address for sign in "\r\n,"):
                raise BadStore(store="mailto:", why=f"{address!r} is no address", do="Write NAME@HOST")

    @property
    def name(self) -> str:
        return f"mailto:{self.to}"

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.mail import MailMessenger
        from headwater.serve.stores.outbox import Outbox

        messenger = MailMessenger(self.to, sender=self.sender, server=self.server)
        outbox = Outbox(self.file(served, "outbox"), served, messenger, name=self.name)
        outbox.start()
        return outbox


@dataclass(frozen=True)
class Stdout(Destination):
    out: TextIO | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        return "stdout:"

    def open(self, served: Served) -> Target:
        from headwater.serve.stores.lines import Lines

        return Lines(self.file(served, "lines"), served, name=self.name, out=self.out)


To = str | Destination
FORMS = (
    "postgresql://HOST/DATABASE?table=NAME, redis://HOST/0?prefix=NAME, duckdb:PATH, search:, parquet:FOLDER, "
    "delta:FOLDER, https://HOST/PATH#whsec_..., mailto:NAME@HOST?sender=NAME@HOST&host=HOST, stdout:"
)


def destination(to: To) -> Destination:
    """What an address stands for."""
    if isinstance(to, Destination):
        return to
    scheme, colon, rest = to.partition(":")
    if colon and scheme in ("duckdb", "parquet", "delta") and rest:
        path, _, options = rest.partition("?")
        if scheme == "duckdb":
            return DuckDB(path, dict(parse_qsl(options)).get("table"))
        return Parquet(path) if scheme == "parquet" else Delta(path)
    if colon and scheme == "search":
        return Search(tuple(filter(None, rest.split(","))))
    if colon and scheme == "stdout" and not rest:
        return Stdout()
    made = _networked(to, scheme) if colon else None
    if made is None:
        shown_scheme = f"{scheme}:" if colon and scheme.isalnum() else "what was given"
        raise BadStore(store=shown_scheme, why="there is no store of that kind", do=f"Write one of {FORMS}")
    return made


def _networked(to: str, scheme: str) -> Destination | None:
    parts = urlsplit(to)
    if scheme in ("postgresql", "postgres"):
        url, ours = _taken(to, "table", "schema")
        return Postgres(url, ours.get("table"), ours.get("schema", "public"))
    if scheme in ("redis", "rediss"):
        url, ours = _taken(to, "prefix")
        return Redis(url, ours.get("prefix"))
    if scheme in ("https", "http"):
        return Webhook(parts._replace(fragment="").geturl(), parts.fragment)
    if scheme == "mailto":
        ours = dict(parse_qsl(parts.query))
        server = Server(ours.get("host", "localhost"), int(ours.get("port", "25")))
        return Email(unquote(parts.path), ours.get("sender", ""), server)
    return None


def _taken(url: str, *names: str) -> tuple[str, dict[str, str]]:
    """The address without these of its options, which are ours, and they."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    rest = urlencode([(name, value) for name, value in options if name not in names])
    return parts._replace(query=rest).geturl(), {name: value for name, value in options if name in names}
