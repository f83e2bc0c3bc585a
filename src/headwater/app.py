"""What a user declares: topics and views of one app. It only delegates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from headwater.clock import Clock, system_clock
from headwater.errors import BadName, UsageError
from headwater.log import Settings, Topic, TopicSpec, open_log
from headwater.log.spec import NAME, Kind
from headwater.records import Columns, schema_of
from headwater.running import Running, Say
from headwater.serve.sqlite import SqliteStore
from headwater.serve.view import View, ViewSpec

Key = str | tuple[str, ...] | list[str] | None


class App:
    """Declare topics and views, then `run()`. Nothing is global: two apps in one process do not know of each other.

    Topics can be appended to and read, and views read, whether or not the app is running.
    """

    def __init__(self, name: str, *, log: str = "file:data", clock: Clock = system_clock) -> None:
        if not NAME.fullmatch(name):
            raise BadName(name=name, kind="app")
        self.name = name
        self.log = open_log(log, clock=clock)
        self.folder = Path(self.log.url.removeprefix("file:"))
        self._topics: dict[str, Topic] = {}
        self._running = Running(name, self.log, self.folder)

    @property
    def topics(self) -> Mapping[str, Topic]:
        return MappingProxyType(self._topics)

    @property
    def views(self) -> Mapping[str, View]:
        return MappingProxyType(self._running.views)

    def topic(
        self,
        name: str,
        columns: Columns,
        *,
        key: Key = None,
        time: str | None = None,
        kind: Kind = "stream",
        partitions: int = 4,
        upsert: bool = False,
        versioned: bool = False,
        settings: Settings | None = None,
    ) -> Topic:
        """A topic, made now if it is not there. `columns` maps names to types, such as {"user_id": "int64"}.

        What it was made with stays, but for new columns and wider types; `settings` are those of its making.
        """
        spec = TopicSpec(
            name,
            schema_of(columns),
            key=_names(key) or (),
            time=time,
            kind=kind,
            partitions=partitions,
            upsert=upsert,
            versioned=versioned,
            settings=settings or Settings(),
        )
        topic = self._topics[name] = Topic(self.log, self.log.create(spec))
        return topic

    def view(self, name: str, *, sql: str, key: Key = None) -> View:
        """A view: the answer to `sql` over this app's topics, kept up to date while the app runs."""
        if not NAME.fullmatch(name):
            raise BadName(name=name, kind="view")
        if name in self._topics or name in self.views:
            raise UsageError(what=f"{name!r} is declared twice", do="Give the view a name of its own")
        from headwater.process.sql.planner import plan_view

        plan = plan_view(name, sql, {topic.name: topic.spec for topic in self._topics.values()}, key=_names(key))
        inputs = tuple(dict.fromkeys(read.topic for read in plan.reads))
        spec = ViewSpec(name, sql, plan.schema, plan.key, inputs)
        file = self.folder / "stores" / f"{name}@{plan.fingerprint()}.db"
        view = View(spec, lambda: SqliteStore(file, spec.schema, spec.key))
        self._running.declare(plan, view)
        return view

    def run(
        self,
        *,
        until: Literal["stopped", "caught-up"] = "stopped",
        http: str | None = None,
        master: str | None = None,
        say: Say | None = None,
    ) -> None:
        """Keep all views up to date, until stopped (Ctrl-C, SIGTERM, `stop()`) or until all inputs are processed."""
        self._running.run(self._topics, until=until, http=http, master=master, say=say)

    def stop(self) -> None:
        """Ask a running `run()`, in whichever thread, to stop."""
        self._running.stop()

    def close(self) -> None:
        for view in self.views.values():
            view.close()
        self.log.close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _names(key: Key) -> tuple[str, ...] | None:
    return (key,) if isinstance(key, str) else tuple(key) if key else None
