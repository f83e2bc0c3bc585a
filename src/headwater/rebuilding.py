"""A rebuild while it runs: new versions are filled from the log, beside the current ones, which nobody disturbs.

    1  The versions are begun: rows of the registry, in one append. What cannot be built is refused here.
    2  Their topics are made, their checkpoints verified.
    3  Stores follow, Spark starts, the pipelines start, each in the order of dependence.
    4  When all cover what their inputs held, they are marked as built: one append.
    5  If asked for, they become current: one append.

A crash after any of these leaves what the next call goes on with; the current versions notice none of it before 5.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from headwater.errors import CheckpointLost, VersionRefused, ViewNotFound
from headwater.log.position import Position
from headwater.process.inuse import in_use
from headwater.process.lineage import with_dependents
from headwater.process.rebuild import Build
from headwater.process.version import Version
from headwater.running import Running, Say
from headwater.serve.follower import Follower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.process.pipeline import Pipeline
    from headwater.process.query import Query

WATCH_S = 0.1
SAY_S = 2.0


def rebuild(
    running: Running, view: str, *, from_retained: bool, switch: bool, master: str | None, say: Say | None
) -> list[Version]:
    say = say or (lambda text: None)
    log, versions = running.log, running.versions
    if view not in running.derived:
        raise ViewNotFound(view=view, known=running.derived)
    with ExitStack() as stack:
        stack.enter_context(in_use(running.folder))
        begun = versions.begin_rebuild(with_dependents(view, running.declared()), from_retained=from_retained)
        if view not in {each.name for each in begun}:
            raise VersionRefused(view=view, why="it was never built", do="`headwater run FILE` builds it from the log")
        pipelines = [running.pipeline(each, alone=True) for each in begun]
        for pipeline in pipelines:
            _prepare(pipeline)
        views = [each for each in begun if running.derived[each.name].view is not None]
        stores = {each.name: running.store_of(each) for each in views}
        followers = [Follower(log, each.topic, each.producer, stores[each.name]) for each in views]
        for follower, store in zip(followers, stores.values(), strict=True):
            stack.callback(store.close)
            follower.start()
            stack.callback(follower.stop)
        say("starting Spark (its first batch takes 20 to 40 seconds)")
        from headwater.process.session import spark_session, stopped_after

        words = running.folder / "spark.log"
        session = spark_session(running.app, words=words, master=master)
        stack.enter_context(stopped_after(session, words=words))
        for pipeline in pipelines:
            pipeline.check(session)
        from headwater.process.query import Query

        queries = [Query([pipeline]) for pipeline in pipelines]
        for query in queries:
            query.start(session)
            stack.callback(query.stop)
        by_name = {pipeline.name: pipeline for pipeline in pipelines}

        def covers(version: Version) -> Position:
            """By the store, if there is one; tables that a stream reads as they are, it never lags behind."""
            if version.name in stores:
                return stores[version.name].mark().covers
            covered = log.covered(version.producer)
            tables = log.snapshot(by_name[version.name].lane.tables).position
            done = covered.progress.end if covered else Position()
            return Position.of({**done.as_dict(), **tables.as_dict()})

        build = Build(log, begun, covers)
        _watch(build, session, queries, followers, say)
        say(build.line())
        versions.built(begun)
    if switch:
        for each in versions.switch(view):
            if each.name in running.views:
                running.serve(each)
    numbers = {(each.name, each.version) for each in begun}
    return [each for of in versions.all().values() for each in of if (each.name, each.version) in numbers]


def _watch(build: Build, session: SparkSession, queries: list[Query], followers: list[Follower], say: Say) -> None:
    said, said_at = "", 0.0
    while not build.done():
        for query in queries:
            failed = query.failure()
            if failed is not None and not query.start_again(session):
                raise failed.error
        for follower in followers:
            if follower.failure is not None:
                raise follower.failure
        if (line := build.line()) != said and time.monotonic() - said_at > SAY_S:
            said, said_at = line, time.monotonic()
            say(line)
        time.sleep(WATCH_S)


def _prepare(pipeline: Pipeline) -> None:
    try:
        pipeline.prepare()
    except CheckpointLost as lost:
        version = pipeline.version
        raise VersionRefused(
            view=version.name,
            why=f"version {version.version} was begun and cannot go on ({lost.why})",
            do=f"`headwater view drop {version.name} --version {version.version} --app FILE`, then rebuild",
        ) from lost
