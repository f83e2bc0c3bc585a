"""The versions of every pipeline, kept in the log itself: which were built, with what code, and which one counts.

    building   its topic is being filled              built      filled to the end once, and newer than the current one
    current    what is run and served                 previous   was current, and can be again
    dropped    its topic and files are gone, or about to be; the number is never used again

Each act is one append, or nothing (`process.registry`): two views that switch together do so at one moment, and of two
processes that act at once, one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.clock import Clock, system_clock
from headwater.errors import VersionRefused, VersionsRaced, ViewNotFound
from headwater.log.protocol import Log
from headwater.process.anew import begin_where_it_began
from headwater.process.decision import Decision, decide
from headwater.process.lineage import Declared
from headwater.process.rebuild import refuse_lost_inputs
from headwater.process.registry import Book, Registry
from headwater.process.switching import switched
from headwater.process.version import State, Version, topic_of

ATTEMPTS = 20
"""How often a declaration is tried again when others act at the same moment: whoever is second decides anew."""


class Versions:
    """`found` are fingerprints of pipelines that are there, by name, but may be older than this record: such a one is
    version 1 and current, until an act writes it down. Looking never writes."""

    def __init__(
        self, log: Log, *, app: str = "", clock: Clock = system_clock, found: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._app = app
        self._registry = Registry(log, clock=clock)
        self._found = [Version(name, 1, mark, {}, {}, "current", app) for name, mark in (found or {}).items()]

    def _read(self) -> Book:
        return self._registry.read(adopt=self._found)

    # --- looking ---

    def all(self) -> Mapping[str, list[Version]]:
        return self._read().versions

    def of(self, name: str) -> list[Version]:
        """From the first to the last, with those that were dropped."""
        return self._read().of(name)

    def current(self, name: str) -> Version | None:
        return self._read().current(name)

    def decide(self, declared: Declared) -> Decision:
        return decide(declared, self.of(declared.name))

    # --- acting ---

    def declare(self, declared: Declared) -> Decision:
        """Before a run, in the order of dependence: a pipeline that is new becomes version 1, and current."""
        for attempt in range(ATTEMPTS):
            book = self._read()
            decision = decide(declared, book.of(declared.name))
            unknown = decision.kind == "same" and decision.current in book.adopted
            if decision.kind != "new" and not unknown:
                return decision
            try:
                inputs = {name: book.read_as(name) for name in declared.inputs}
                number = len(book.of(declared.name)) + 1 if decision.kind == "new" else 1
                row = self._made(book, declared, number, inputs, state="current")
                (version,) = self._registry.write(book, [row])
            except VersionsRaced:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            return replace(decision, version=version, current=version)
        raise AssertionError("unreachable")

    def begin_rebuild(self, wanted: Sequence[Declared], *, from_retained: bool = False) -> list[Version]:
        """New versions of these pipelines, to be built beside the old ones; `wanted` is in the order of dependence.

        One that was begun before with the same code over the same inputs goes on. Who has no version yet is left out:
        its first run builds it. `InputsGone` if some of what they would read was removed, unless `from_retained`.
        """
        book = self._read()
        building: dict[str, Version] = {}
        new = []
        for declared in wanted:
            if book.current(declared.name) is None:
                continue
            inputs = {
                name: building[name].topic if name in building else book.read_as(name) for name in declared.inputs
            }
            self._refuse_stale(book, building, declared)
            begun = [
                each
                for each in book.of(declared.name)
                if each.state in ("building", "built")
                and (each.fingerprint, each.inputs) == (declared.fingerprint, inputs)
            ]
            if begun:
                building[declared.name] = begun[-1]
                continue
            if not from_retained:
                made_now = {each.topic for each in building.values()}
                refuse_lost_inputs(
                    self._log, declared.name, [topic for topic in inputs.values() if topic not in made_now]
                )
            number = len(book.of(declared.name)) + 1
            version = self._made(book, declared, number, inputs, state="building", from_retained=from_retained)
            building[declared.name] = version
            new.append(version)
        if new:
            building |= {each.name: each for each in self._registry.write(book, new)}
        return list(building.values())

    def built(self, versions: Sequence[Version]) -> None:
        """They cover what their inputs held when they were begun."""
        book = self._read()
        ends = {(each.name, each.version) for each in versions}
        rows = [each for of in book.versions.values() for each in of if (each.name, each.version) in ends]
        finished = [replace(each, state="built") for each in rows if each.state == "building"]
        if finished:
            self._registry.write(book, finished)

    def switch(self, name: str, *, version: int | None = None) -> list[Version]:
        """Make the newest built version current, or the given one, and with it whatever reads it or is read by it."""
        book = self._read()
        current = self._known(book, name)
        newer = [each for each in book.of(name) if each.state == "built" and each.version > current.version]
        if version is not None:
            target = self._numbered(book, name, version)
        elif newer:
            target = newer[-1]
        else:
            unfinished = any(each.state == "building" for each in book.of(name))
            raise VersionRefused(
                view=name,
                why=f"there is no newer version than {current.version} that is built"
                + (" to the end" if unfinished else ""),
                do=f"`headwater view rebuild {name} --app FILE` " + ("goes on with it" if unfinished else "builds one"),
            )
        return self._switch(book, target)

    def switch_back(self, name: str) -> list[Version]:
        """Make the version current that was so before."""
        book = self._read()
        current = self._known(book, name)
        older = [each for each in book.of(name) if each.state == "previous" and each.version < current.version]
        if not older:
            raise VersionRefused(
                view=name,
                why=f"version {current.version} is current and there is none to go back to",
                do=f"See `headwater view versions {name} --app FILE`",
            )
        return self._switch(book, older[-1])

    def drop(self, name: str, version: int, *, gone: bool = False) -> Version:
        """Nobody may run or switch to it any more. The caller then removes what it left: see `process.discard`.

        Done again, it changes nothing, so that a removal that was cut short can be repeated. The current version is
        dropped only if its pipeline is `gone`: no code declares it.
        """
        book = self._read()
        if not book.of(name):
            raise self._unknown(book, name)
        dropped = next((each for each in book.of(name) if each.version == version), None)
        if dropped is not None and dropped.state == "dropped":
            return dropped
        found = self._numbered(book, name, version)
        if found.state == "current" and not gone:
            raise VersionRefused(
                view=name,
                why=f"version {version} is current",
                do="Switch to another version first, or take the view out of the app",
            )
        for reader in (each for of in book.versions.values() for each in of if each.state != "dropped"):
            if found.topic in reader.inputs.values():
                raise VersionRefused(
                    view=name,
                    why=f"version {version} is read by version {reader.version} of {reader.name!r}",
                    do=f"First `headwater view drop {reader.name} --version {reader.version} --app FILE`",
                )
        (row,) = self._registry.write(book, [replace(found, state="dropped")])
        return row

    def begin_anew(self, going: Sequence[Version], *, from_retained: bool = False) -> list[Version]:
        """Drop these, and let those of them that are current begin again, as a version with the same code: one append.

        Whoever is started next builds these from the log. The caller removes what the dropped ones left.
        """
        book = self._read()
        if any(each not in book.of(each.name) for each in going):
            raise VersionsRaced(view=going[0].name)
        current = [each for each in going if each.state == "current" and each.description]
        numbers = {each.name: len(book.of(each.name)) + 1 for each in current}
        topics = {each.topic: topic_of(each.name, numbers[each.name]) for each in current}
        new = []
        for each in current:
            inputs = {name: topics.get(topic, topic) for name, topic in each.inputs.items()}
            code = Declared(each.name, each.fingerprint, each.description, tuple(inputs))
            row = self._made(
                book,
                code,
                numbers[each.name],
                inputs,
                state="current",
                from_retained=each.from_retained or from_retained,
            )
            begin_where_it_began(self._log, each, row, topics)
            new.append(replace(row, app=each.app))
        if going:
            new = self._registry.write(book, [*new, *(replace(each, state="dropped") for each in going)])[: len(new)]
        return new

    # --- pieces of acts ---

    def _switch(self, book: Book, target: Version) -> list[Version]:
        if target.state == "building":
            raise VersionRefused(
                view=target.name,
                why=f"version {target.version} is not built to the end",
                do=f"`headwater view rebuild {target.name} --app FILE` goes on with it",
            )
        if target.state == "current":
            return [target]
        rows = self._registry.write(book, switched(book.versions, target))
        return [each for each in rows if each.state == "current"]

    def _known(self, book: Book, name: str) -> Version:
        current = book.current(name)
        if current is None:
            raise self._unknown(book, name)
        return current

    def _unknown(self, book: Book, name: str) -> ViewNotFound:
        return ViewNotFound(view=name, known=[each for each in book.versions if book.current(each)])

    def _numbered(self, book: Book, name: str, version: int) -> Version:
        there = [each for each in book.of(name) if each.state != "dropped"]
        found = next((each for each in there if each.version == version), None)
        if found is None:
            raise VersionRefused(
                view=name,
                why=f"there is no version {version}",
                do=f"Versions: {', '.join(f'{each.version} ({each.state})' for each in there)}",
            )
        return found

    def _made(
        self,
        book: Book,
        declared: Declared,
        number: int,
        inputs: Mapping[str, str],
        *,
        state: State,
        from_retained: bool = False,
    ) -> Version:
        """A row to be written; refused if its topic would be somebody else's."""
        topic = topic_of(declared.name, number)
        for other in (each for of in book.versions.values() for each in of if each.name != declared.name):
            if other.topic == topic and other.state != "dropped":
                raise VersionRefused(
                    view=declared.name,
                    why=f"topic {topic!r} is that of version {other.version} of {other.name!r}",
                    do="Give one of the two another name",
                )
        if number > 1 and topic in {spec.name for spec in self._log.topics()}:
            raise VersionRefused(
                view=declared.name,
                why=f"version {number} would write to the topic {topic!r}, which is there already",
                do=f"Rename that topic's producer, or `headwater topic delete {topic}`",
            )
        name, fingerprint, description = declared.name, declared.fingerprint, declared.description
        return Version(name, number, fingerprint, description, inputs, state, self._app, from_retained)

    def _refuse_stale(self, book: Book, building: Mapping[str, Version], declared: Declared) -> None:
        """What it reads must be what the code says it is, or be rebuilt with it."""
        for name, fingerprint in declared.description.get("upstream", {}).items():
            read = building.get(name) or book.current(name)
            if read is None or read.fingerprint != fingerprint:
                raise VersionRefused(
                    view=declared.name,
                    why=f"it reads {name!r}, which " + ("was never built" if read is None else "has changed itself"),
                    do=f"`headwater run FILE --caught-up` builds {name}"
                    if read is None
                    else f"`headwater view rebuild {name} --app FILE` rebuilds both",
                )
