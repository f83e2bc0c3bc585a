"""An app while it runs: what is started in which order, watched, and stopped in the reverse order."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headwater.capture.status import CaptureStatus
from headwater.capturing import Captures
from headwater.errors import HeadwaterError, PlanChanged, TopicNotFound, UsageError, ViewNotFound
from headwater.goal import Goal
from headwater.log import Log
from headwater.process.inuse import in_use
from headwater.process.lineage import Declared, identified
from headwater.process.version import Version, first_versions
from headwater.process.versions import Versions
from headwater.serve.astray import begin, refuse_astray
from headwater.serve.serving import ServedView, StoreStatus, served_view
from headwater.serve.store import Served, Target
from headwater.serve.stores import Destination
from headwater.serve.stores.sqlite import SqliteStore
from headwater.serve.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.process.audit import Audited
    from headwater.process.lane import Lane
    from headwater.process.pipeline import Pipeline, Start, Status
    from headwater.process.plan import Plan
    from headwater.process.query import Query
    from headwater.process.source import Limits
    from headwater.process.ticks import Ticker
    from headwater.serving import Offers

Say = Callable[[str], None]
Show = Callable[[Sequence["Status | CaptureStatus | StoreStatus"]], None]
WATCH_S = 0.1
STATUS_S = 1.0
UPKEEP_S = 30.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Derived:
    """A derived topic: how it is made and, if it is a view, how it is served."""

    lane: Lane
    view: View | None
    start: Start
    limits: Limits


class Running:
    def __init__(self, app: str, log: Log, folder: Path, offers: Offers) -> None:
        self.app = app
        self._offers = offers
        self.log = log
        self.folder = folder
        self.derived: dict[str, Derived] = {}
        self.captures = Captures(log)
        self._stopped = threading.Event()
        self._upkeep_failure: HeadwaterError | None = None

    @property
    def views(self) -> dict[str, View]:
        return {name: each.view for name, each in self.derived.items() if each.view is not None}

    @cached_property
    def versions(self) -> Versions:
        return Versions(self.log, app=self.app, found=first_versions(self.folder))

    def declared(self) -> list[Declared]:
        """What the code says, in the order of dependence."""
        from headwater.process.lane import declared

        return identified(declared(each.lane) for each in self.derived.values())

    def open_store(self, name: str, to: Destination | None = None) -> Target:
        """The current version's, also if the code is another one by now: rows have the columns they were built with."""
        current = self.versions.current(name)
        if current is None:
            number = len(self.versions.of(name)) + 1
            mark = next(each.fingerprint for each in self.declared() if each.name == name)
            current = Version(name, number, mark, {}, {}, "current")
        return self.open_version(current, to)

    def open_version(self, version: Version, to: Destination | None = None) -> Target:
        """To read from. `StoreAstray` if its rows are not those of this log."""
        store = self.store_of(version) if to is None else to.open(self._served(version))
        refuse_astray(self.log, version.topic, version.producer, store, view=version.name)
        return store

    def store_of(self, version: Version) -> SqliteStore:
        served = self._served(version)
        return SqliteStore(version.store(self.folder), served.schema, served.key)

    def _served(self, version: Version) -> Served:
        try:
            spec = self.log.topic(version.topic)
        except TopicNotFound:
            made = self.derived[version.name].lane.output(version.topic)
            assert made is not None
            spec = made
        return Served(version.name, version.producer, spec.schema, spec.key, self.folder / "stores")

    def plan(self, name: str) -> Plan:
        plan: Plan | None = getattr(self.derived[name].lane, "plan", None) if name in self.views else None
        if plan is None:
            raise ViewNotFound(view=name, known=self.views)
        return plan

    def audit(self) -> list[Audited]:
        """Each SQL view that has run, against DuckDB."""
        from headwater.process.audit import audit
        from headwater.process.keyed.lane import KeyedLane

        made = [self.current(name) for name in self.views if self.versions.current(name) is not None]
        audited = [
            audit(self.log, each.lane, topic=each.topic, producer=each.producer)
            for each in made
            if isinstance(each.lane, KeyedLane)
        ]
        return [each for each in audited if each is not None]

    def serve(self, version: Version) -> None:
        """The view answers from that version's store."""
        store = self.store_of(version)
        begin(self.log, version.topic, version.producer, store)  # before anybody is answered from it
        self.views[version.name].serve_from(store)

    def stop(self) -> None:
        self._stopped.set()

    def pipeline(self, version: Version, *, alone: bool = False) -> Pipeline:
        """In the query that pipelines of its depth share, unless it is to be `alone`, or was when it was built."""
        from headwater.process.pipeline import Pipeline

        made = self.derived[version.name]
        own = alone or made.lane.depth is None or (version.folder(self.folder) / "checkpoint").is_dir()
        query = None if own else self.folder / "queries" / f"{self.app}-{made.lane.depth}"
        return Pipeline(
            made.lane, self.log, self.folder, version=version, limits=made.limits, start=made.start, query=query
        )

    def _queries(self, pipelines: Sequence[Pipeline]) -> list[Query]:
        from headwater.process.query import Query

        shared: dict[Path, list[Pipeline]] = {}
        for pipeline in pipelines:
            shared.setdefault(pipeline.query_folder, []).append(pipeline)
        return [Query(some) for some in shared.values()]

    def current(self, name: str) -> Pipeline:
        """As it was last run."""
        version = self.versions.current(name)
        if version is None or name not in self.derived:
            raise ViewNotFound(view=name, known=self.derived)
        return self.pipeline(version)

    def _declare(self) -> list[Version]:
        """The version of everything that is to run. All are looked at before the first new one is written down."""
        declared = self.declared()
        for each in declared:
            if (refusal := self.versions.decide(each).refusal) is not None:
                raise refusal
        found = []
        for each in declared:
            decision = self.versions.declare(each)
            if decision.refusal is not None or decision.version is None:  # somebody was faster
                raise decision.refusal or PlanChanged(view=each.name, details=())
            found.append(decision.version)
        return found

    def run(
        self,
        *,
        until: Literal["stopped", "caught-up"],
        only: Literal["captures"] | None,
        http: str | None,
        master: str | None,
        say: Say | None,
        show: Show | None,
    ) -> None:
        say = say or (lambda text: None)
        if only == "captures" or (self.captures and not self.derived):
            self._run_captures(until=until, http=None if only else http, say=say, show=show)
            return
        if not self.derived:
            raise UsageError(
                what=f"app {self.app!r} has no views or streams",
                do="Declare one with app.view(...) or @app.stream(...)",
            )
        self._stopped.clear()
        from headwater.process.ticks import Ticker

        with ExitStack() as stack:
            stack.enter_context(in_use(self.folder))
            pipelines = [self.pipeline(version) for version in self._declare()]
            ticker = Ticker(self.log, pipelines)
            ticker.tick()
            goal = Goal(self.log, pipelines) if until == "caught-up" and not self.captures else None
            stack.enter_context(self._signals())
            # 1. Everything that can be refused is refused before anything starts.
            for pipeline in pipelines:
                pipeline.prepare()
                if pipeline.name in self.views:
                    self.serve(pipeline.version)
            # 2. The server: appends are taken and views answer while Spark is still starting.
            if http is not None:
                stack.callback(self._serve(http, say))
            self.captures.start(stack, say)
            # 3. Stores follow what is already in the log.
            followers = []
            for pipeline in pipelines:
                view = self.views.get(pipeline.name)
                if view is not None:
                    follower = served_view(
                        self.log, pipeline.topic, pipeline.producer, view, self._served(pipeline.version)
                    )
                    follower.start()
                    stack.callback(follower.stop)
                    followers.append(follower)
            stack.callback(self._keep_up(followers))
            # 4. Spark, 5. the pipelines: all are checked, then each fences its predecessor.
            say("starting Spark (its first batch takes 20 to 40 seconds)")
            from headwater.process.session import spark_session, stopped_after

            words = self.folder / "spark.log"
            session = spark_session(self.app, words=words, master=master)
            self._arm()  # Spark has put its own handler of Ctrl-C in place of ours
            stack.enter_context(stopped_after(session, words=words))
            for pipeline in pipelines:
                pipeline.check(session)
            queries = self._queries(pipelines)
            for query in queries:
                query.start(session)
                stack.callback(query.stop)
            if until == "caught-up" and self.captures:
                self.captures.wait(self._stopped, show, caught_up=True)
                goal = Goal(self.log, pipelines)
            self._watch(session, queries, followers, goal, ticker, say, show)
            say("stopping")
            for query in queries:
                query.finish()

    def _run_captures(
        self,
        *,
        until: Literal["stopped", "caught-up"],
        http: str | None,
        say: Say,
        show: Show | None,
    ) -> None:
        """Without Spark: databases go on to fill topics."""
        if not self.captures:
            do = "Declare it with app.capture('postgresql://...', tables=[...])"
            raise UsageError(what=f"app {self.app!r} captures nothing", do=do)
        self._stopped.clear()
        with ExitStack() as stack:
            stack.enter_context(self._signals())
            if http is not None:
                stack.callback(self._serve(http, say))
            stack.callback(self._keep_up([]))
            self.captures.start(stack, say)
            self.captures.wait(self._stopped, show, caught_up=until == "caught-up")
            say("stopping")

    def _serve(self, http: str, say: Say) -> Callable[[], None]:
        from headwater.serving import start_server

        server = start_server(self.log, self.folder, http, self._offers)
        say(f"serving {server.url}")
        return server.stop

    def _keep_up(self, followers: list[ServedView]) -> Callable[[], None]:
        """Upkeep of the log in a thread of its own, while the app runs; stores keep what they have yet to apply."""
        upkeep = getattr(self.log, "upkeep", None)
        ended = threading.Event()

        def rounds() -> None:
            while upkeep is not None and not ended.wait(UPKEEP_S):
                try:
                    for follower in followers:
                        follower.pin()
                    upkeep.run()
                except HeadwaterError as error:
                    self._upkeep_failure = error

        thread = threading.Thread(target=rounds, name="upkeep", daemon=True)
        thread.start()

        def end() -> None:
            ended.set()
            thread.join()

        return end

    def _watch(
        self,
        session: SparkSession,
        queries: list[Query],
        followers: list[ServedView],
        goal: Goal | None,
        ticker: Ticker,
        say: Say,
        show: Show | None,
    ) -> None:
        started, warm, shown = time.monotonic(), False, 0.0
        pipelines = [pipeline for query in queries for pipeline in query.pipelines]
        known = [self.log.covered(pipeline.producer) for pipeline in pipelines]
        while not self._stopped.wait(WATCH_S):
            if self._upkeep_failure is not None:
                say(f"upkeep of the log failed, the app goes on: {self._upkeep_failure}")
                self._upkeep_failure = None
            for query in queries:
                if (failed := query.failure()) is None:
                    continue
                if query.start_again(session):
                    say(f"{query.pipelines[0].name}: the machine was too busy to start a worker; trying again")
                elif failed.pipeline is not None and goal is None:
                    say(f"{failed.pipeline.name} is parked, the others go on: {failed.error}")
                    query.park(failed, session)
                else:
                    raise failed.error
            for follower in followers:
                if follower.failure is not None:
                    raise follower.failure
            self.captures.check()
            ticker.tick_when_due()
            if not warm and [self.log.covered(pipeline.producer) for pipeline in pipelines] != known:
                warm = True
                say(f"running: the first batch is through after {time.monotonic() - started:.0f} s")
            if show is not None and time.monotonic() - shown >= STATUS_S:
                pipelines_now = [each.status(query.batch_s()) for query in queries for each in query.pipelines]
                stores = [status for each in followers for status in each.statuses()]
                show([*pipelines_now, *stores, *self.captures.statuses()])
                shown = time.monotonic()
            if goal is not None and goal.reached(self.views) and all(each.settled() for each in followers):
                return

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run in order; a second Ctrl-C ends the process."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self._arm()
        try:
            yield
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _arm(self) -> None:
        def ask(number: int, frame: object) -> None:
            self._stopped.set()
            signal.signal(number, signal.SIG_DFL)

        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, ask)
