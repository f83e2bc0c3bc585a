"""An app while it runs: what is started in which order, watched, and stopped in the reverse order."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headwater.errors import HeadwaterError, UsageError
from headwater.log import Log, Position, Topic
from headwater.serve.follower import Follower
from headwater.serve.view import View

if TYPE_CHECKING:
    from headwater.process.pipeline import Pipeline
    from headwater.process.plan import Plan

Say = Callable[[str], None]
WATCH_S = 0.1
UPKEEP_S = 30.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Running:
    def __init__(self, app: str, log: Log, folder: Path) -> None:
        self._app = app
        self._log = log
        self._folder = folder
        self._plans: dict[str, Plan] = {}
        self.views: dict[str, View] = {}
        self._stopped = threading.Event()
        self._upkeep_failure: HeadwaterError | None = None

    def declare(self, plan: Plan, view: View) -> None:
        self._plans[plan.view] = plan
        self.views[plan.view] = view

    def stop(self) -> None:
        self._stopped.set()

    def run(
        self,
        topics: Mapping[str, Topic],
        *,
        until: Literal["stopped", "caught-up"],
        http: str | None,
        master: str | None,
        say: Say | None,
    ) -> None:
        from headwater.process.pipeline import Pipeline, producer_name

        say = say or (lambda text: None)
        if not self._plans:
            raise UsageError(what=f"app {self._app!r} has no views", do="Declare one with app.view(...)")
        self._stopped.clear()
        goal = self._log.snapshot([name for plan in self._plans.values() for name in _inputs(plan)]).position
        with ExitStack() as stack:
            stack.enter_context(self._signals())
            # 1. Everything that can be refused is refused before anything starts.
            pipelines = [Pipeline(plan, self._log, self._folder / "pipelines") for plan in self._plans.values()]
            for pipeline in pipelines:
                pipeline.prepare()
            # 2. The server: appends are taken and views answer while Spark is still starting.
            if http is not None:
                stack.callback(self._serve(topics, http, say))
            # 3. Stores follow what is already in the log.
            followers = []
            for name, plan in self._plans.items():
                follower = Follower(self._log, name, producer_name(plan), self.views[name].store)
                follower.start()
                stack.callback(follower.stop)
                followers.append(follower)
            stack.callback(self._keep_up(followers))
            # 4. Spark, 5. the pipelines, each fencing its predecessor.
            say("starting Spark (its first batch takes 20 to 40 seconds)")
            from headwater.process.session import spark_session

            session = spark_session(self._app, words=self._folder / "spark.log", master=master)
            self._arm()  # Spark has put its own handler of Ctrl-C in place of ours
            stack.callback(session.stop)
            for pipeline in pipelines:
                pipeline.start(session)
                stack.callback(pipeline.stop)
            self._watch(pipelines, followers, goal if until == "caught-up" else None, say)
            say("stopping")

    def _serve(self, topics: Mapping[str, Topic], http: str, say: Say) -> Callable[[], None]:
        from headwater.console import mount_pages
        from headwater.serve.http import make_api
        from headwater.serve.server import Server

        api = make_api(topics, self.views)
        mount_pages(api)
        server = Server(api, http)
        server.start()
        say(f"serving {server.url}")
        return server.stop

    def _keep_up(self, followers: list[Follower]) -> Callable[[], None]:
        """Upkeep of the log in a thread of its own, while the app runs; stores keep what they have yet to apply."""
        upkeep = getattr(self._log, "upkeep", None)
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

    def _watch(self, pipelines: list[Pipeline], followers: list[Follower], goal: Position | None, say: Say) -> None:
        started, warm = time.monotonic(), False
        known = [self.views[name].position for name in self._plans]
        while not self._stopped.wait(WATCH_S):
            if self._upkeep_failure is not None:
                say(f"upkeep of the log failed, the app goes on: {self._upkeep_failure}")
                self._upkeep_failure = None
            for failure in (*(pipeline.failure() for pipeline in pipelines), *(each.failure for each in followers)):
                if failure is not None:
                    raise failure
            if not warm and [self.views[name].position for name in self._plans] != known:
                warm = True
                say(f"running: the first batch is through after {time.monotonic() - started:.0f} s")
            if goal is not None and self._caught_up(goal):
                return

    def _caught_up(self, goal: Position) -> bool:
        return all(self.views[name].position.covers(goal.only(_inputs(plan))) for name, plan in self._plans.items())

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


def _inputs(plan: Plan) -> list[str]:
    return [read.topic for read in plan.reads]
