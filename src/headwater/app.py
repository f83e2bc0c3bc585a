"""What a user declares: topics, streams and views of one app. It only delegates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headwater.capture.sources import Given, Into, spec_of
from headwater.capture.spec import Tables
from headwater.clock import Clock, system_clock
from headwater.durations import Duration, lateness, micros
from headwater.errors import BadName, TopicNotFound, UsageError
from headwater.log import Settings, Topic, TopicSpec, open_log
from headwater.log.spec import NAME, Kind
from headwater.receiving import Receiving
from headwater.records import Columns, schema_of
from headwater.running import Derived, Running, Say, Show
from headwater.serve.view import View, ViewSpec
from headwater.together import Together

if TYPE_CHECKING:
    from headwater.log.protocol import Progress
    from headwater.process.audit import Audited
    from headwater.process.changes import Change
    from headwater.process.frames.lane import Mode
    from headwater.process.keyed.lane import KeyedLane
    from headwater.process.lane import Lane
    from headwater.process.pipeline import Start
    from headwater.process.plan import Plan
    from headwater.process.version import Version

Key = str | tuple[str, ...] | list[str] | None
Function = TypeVar("Function", bound=Callable[..., Any])


class App(Receiving, Together):
    """Declare topics, streams and views, then `run()`. Nothing is global: two apps do not know of each other.

    Topics can be appended to and read, and views read, whether or not the app is running.
    """

    def __init__(self, name: str, *, log: str = "file:data", clock: Clock = system_clock) -> None:
        if not NAME.fullmatch(name):
            raise BadName(name=name, kind="app")
        self.log, self.clock = open_log(log, clock=clock), clock
        self.folder = Path(self.log.url.removeprefix("file:"))
        self.name, self._topics, self._deciders, self._hooks = name, {}, {}, {}
        self._running = Running(name, self.log, self.folder, self)

    @property
    def topics(self) -> Mapping[str, Topic]:
        return MappingProxyType(self._topics)

    @property
    def views(self) -> Mapping[str, View]:
        return MappingProxyType(self._running.views)

    @property
    def derived(self) -> tuple[str, ...]:
        """The names of all that pipelines make: streams and views."""
        return tuple(self._running.derived)

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

    def view(
        self,
        name: str,
        *,
        sql: str | Path,
        key: Key = None,
        retain: Duration | None = None,
        emit: Literal["changes", "final"] = "changes",
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> View:
        """A view: the answer to `sql` over this app's topics, streams and views, kept up to date while the app runs.

        `sql` is a query, or the path of a file with one. `key` are columns that no two rows agree in; without, they are
        what the query groups by, and if that is not selected the view is a bag of rows, which `get` cannot ask for.
        With `retain`, records correct the view for that long in event time: what comes later goes to `<name>.late`, and
        state that nothing can change any more is dropped. emit="final" holds each window back until then.
        """
        self._new(name, "view")
        from headwater.process.keyed.lane import KeyedLane
        from headwater.process.sql.planner import plan_view, sql_of
        from headwater.process.ticks import TICKS

        inputs = self._inputs()
        kept = None if retain is None else micros(retain, what="retain", zero=True)
        plan = plan_view(name, sql_of(name, sql), inputs, key=_names(key), retain=kept, emit=emit)
        if TICKS.name in plan.names:
            self.log.create(TICKS)
        read = [inputs[each.topic] for each in plan.reads if each.topic in inputs]
        timed = tuple(each.name for each in read if each.kind == "stream" and each.time)
        lane = KeyedLane(plan, lateness=self._lateness(timed, retain, name))
        return self._declare_view(lane, max_rows=max_rows, max_bytes=max_bytes)

    def latest(
        self,
        name: str,
        *,
        of: str | Topic,
        key: Key = None,
        by: Literal["log", "time"] = "log",
        retain: Duration | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> View:
        """A view: the newest record of each key of a stream, or the rows of an upsert table.

        Newest in the log or, with by="time", in event time. With `retain`, keys that have been quiet for that long, in
        event time, leave; what comes later than that goes to `<name>.late`.
        """
        self._new(name, "view")
        from headwater.process.keyed.lane import KeyedLane
        from headwater.process.keyed.plans import latest_plan

        topic = self._source(of)
        plan = latest_plan(name, topic, _names(key) or topic.key, by=by, retain=self._retain(topic, retain, name))
        lane = KeyedLane(plan, lateness=self._lateness((topic.name,), retain, name))
        return self._declare_view(lane, max_rows=max_rows, max_bytes=max_bytes)

    def fold(
        self,
        name: str,
        columns: Columns,
        *,
        of: str | Topic,
        initial: Mapping[str, Any],
        key: Key = None,
        by: Literal["record", "arrow"] = "record",
        on_error: Literal["stop", "dead"] = "stop",
        retain: Duration | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Callable[[Function], Function]:
        """A view of what the decorated function makes of each key's records: `function(state, record) -> state`.

        State and record are dicts; with by="arrow" the function gets a table of all new records of a key. The view has
        the key and `columns`, which begin as `initial`. A record on which it raises stops the pipeline or, with
        on_error="dead", goes to `<name>.dead`. `retain` as in `latest`.
        """
        self._new(name, "view")

        def declare(function: Function) -> Function:
            from headwater.process.keyed.lane import KeyedLane
            from headwater.process.keyed.plans import fold_plan

            topic = self._source(of)
            plan = fold_plan(
                name,
                topic,
                _names(key) or topic.key,
                columns=schema_of(columns),
                initial=initial,
                function=function,
                by=by,
                on_error=on_error,
                retain=self._retain(topic, retain, name),
            )
            lateness = self._lateness((topic.name,), retain, name)
            where = getattr(getattr(function, "__code__", None), "co_filename", None)
            lane = KeyedLane(plan, lateness=lateness, dead_letters=on_error == "dead", where=where)
            self._declare_view(lane, max_rows=max_rows, max_bytes=max_bytes)
            return function

        return declare

    def stream(
        self,
        name: str,
        columns: Columns | None = None,
        *,
        key: Key = None,
        time: str | None = None,
        inputs: Mapping[str, str] | None = None,
        lateness: Duration | Mapping[str, Duration] | None = None,
        mode: Mode = "append",
        partitions: int = 4,
        start: Start = "start",
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Callable[[Function], Function]:
        """A derived topic: what the decorated function makes of Spark's frames, named like their topics.

        A parameter that names a stream is a streaming frame; one that names a table is that table as it is when a batch
        runs. `columns` are checked against what the function gives before anything starts; without, they are what it
        gives. With `lateness`, streams that have an event time come with a watermark, and what comes later than that
        goes to the topic `<name>.late`. `mode="update"` writes a table of the newest row of each key.
        `start`, for the very first run, is "start", "end", a position or a time.
        """
        self._new(name, "stream")
        if mode == "update" and not key:
            raise UsageError(what=f"stream {name!r} in update mode has no key", do="Say key='...': rows replace rows")

        def declare(function: Function) -> Function:
            from headwater.process.frames.lane import FramesLane, bind

            bound = bind(function, dict(inputs or {}), self._known)
            topics = dict.fromkeys(topic for _, topic in bound)
            tables = tuple(topic for topic in topics if self._kind(topic) == "table")
            streams = tuple(topic for topic in topics if topic not in tables)
            if not streams:
                what = f"stream {name!r} reads only tables: nothing would ever make a batch"
                raise UsageError(what=what, do="Name a stream among its parameters, or make it a view")
            lane = FramesLane(
                name=name,
                function=function,
                bound=bound,
                inputs=streams,
                tables=tables,
                schema=schema_of(columns) if columns is not None else None,
                key=_names(key) or (),
                time=time,
                mode=mode,
                partitions=partitions,
                lateness=self._lateness(streams, lateness, name),
            )
            self._declare(lane, None, start=start, max_rows=max_rows, max_bytes=max_bytes)
            return function

        return declare

    def capture(
        self, url: str, *, tables: Tables = (), into: Into = None, name: str | None = None, settings: Given = None
    ) -> Mapping[str, Topic]:
        """While the app runs: tables of a database as topics (docs/capture.md); lines `into` one (docs/intake.md)."""
        spec = spec_of(name or self.name, url, tables=tables, into=into, settings=settings)
        captured = self._running.captures.declare(spec, taken={*self._topics, *self._running.derived})
        self._topics |= {topic.name: topic for topic in captured.values()}
        return MappingProxyType(captured)

    # --- declaring ---

    def _new(self, name: str, kind: str) -> None:
        if not NAME.fullmatch(name):
            raise BadName(name=name, kind=kind)
        if name in self._topics or name in self._running.derived:
            raise UsageError(what=f"{name!r} is declared twice", do=f"Give the {kind} a name of its own")

    def _declare_view(self, lane: KeyedLane, *, max_rows: int | None, max_bytes: int | None) -> View:
        plan = lane.plan
        spec = ViewSpec(lane.name, plan.sql, plan.schema, plan.key, lane.inputs)
        view = View(spec, lambda to=None: self._running.open_store(lane.name, to), self._served_from)
        self._declare(lane, view, start="start", max_rows=max_rows, max_bytes=max_bytes)
        return view

    def _declare(
        self, lane: Lane, view: View | None, *, start: Start, max_rows: int | None = None, max_bytes: int | None = None
    ) -> None:
        from headwater.process.source import Limits

        self._running.derived[lane.name] = Derived(lane, view, start, Limits(rows=max_rows, bytes=max_bytes))

    def _inputs(self) -> dict[str, TopicSpec]:
        """What a query can read: everything that is declared so far and says its columns."""
        found = {name: topic.spec for name, topic in self._topics.items()}
        for name in self._running.derived:
            with suppress(UsageError):
                if (spec := self._known(name)) is not None:
                    found[name] = spec
        return found

    def _known(self, name: str) -> TopicSpec | None:
        """The topic of that name, if it is declared, here or by an earlier run."""
        if name in self._topics:
            return self._topics[name].spec
        if name not in self._running.derived:
            return None
        declared = self._running.derived[name].lane.output(name)
        if declared is not None:
            return declared
        try:
            return self.log.topic(name)
        except TopicNotFound:
            what = f"{name!r} does not say its columns, and has not run yet"
            raise UsageError(what=what, do=f"Give {name!r} its columns") from None

    def _source(self, of: str | Topic) -> TopicSpec:
        name = of if isinstance(of, str) else of.name
        if (spec := self._known(name)) is None:
            raise UsageError(what=f"{name!r} is no topic of this app", do="Declare it before")
        return spec

    def _retain(self, topic: TopicSpec, retain: Duration | None, name: str) -> int | None:
        return dict(self._lateness((topic.name,), retain, name)).get(topic.name)

    def _kind(self, name: str) -> Kind:
        if name in self._topics:
            return self._topics[name].spec.kind
        declared = self._running.derived[name]
        return "table" if declared.view is not None or getattr(declared.lane, "mode", "") == "update" else "stream"

    def _lateness(
        self, streams: tuple[str, ...], given: Duration | Mapping[str, Duration] | None, name: str
    ) -> tuple[tuple[str, int], ...]:
        return lateness(streams, given, of=name, known=self._known)

    # --- running ---

    def run(
        self,
        *,
        until: Literal["stopped", "caught-up"] = "stopped",
        only: Literal["captures"] | None = None,
        http: str | None = None,
        master: str | None = None,
        say: Say | None = None,
        show: Show | None = None,
    ) -> None:
        """Keep everything derived up to date, until stopped (Ctrl-C, SIGTERM, `stop()`) or all inputs are processed.
        `say` is told what happens, `show` each second how pipelines stand. only="captures": no Spark, views wait."""
        self._running.run(until=until, only=only, http=http, master=master, say=say, show=show)

    def diff(self) -> list[Change]:
        """What `run` would find new, changed or gone, against what was built; nothing runs, nothing is written."""
        from headwater.process.changes import what_would_change

        return what_would_change(self._running.declared(), self._running.versions.all(), app=self.name)

    def rebuild(
        self,
        name: str,
        *,
        from_retained: bool = False,
        switch: bool = False,
        master: str | None = None,
        say: Say | None = None,
    ) -> list[Version]:
        """Build this code's version of a view or stream, and of all that read it, beside the current ones; these stay.

        Returns when they are built; interrupted, it goes on with the next call. With `switch`, makes them current.
        """
        from headwater.rebuilding import rebuild

        return rebuild(self._running, name, from_retained=from_retained, switch=switch, master=master, say=say)

    def plan(self, name: str) -> Plan:
        """How a view is kept up to date, as operators."""
        return self._running.plan(name)

    def audit(self) -> list[Audited]:
        """Each SQL view as DuckDB computes it over the log, as far as the view covers it, against what the view has."""
        return self._running.audit()

    def skip(self, name: str) -> Progress | None:
        """Give up the batch at which a view or stream stopped: its records go to `<name>.dead`. None: there is none."""
        return self._running.current(name).skip()

    def stop(self) -> None:
        """Ask a running `run()`, in whichever thread, to stop."""
        self._running.stop()

    def close(self) -> None:
        self._close_deciders()
        for view in self.views.values():
            view.close()
        self.log.close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _names(key: Key) -> tuple[str, ...] | None:
    return (key,) if isinstance(key, str) else tuple(key) if key else None
