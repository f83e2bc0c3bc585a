"""Relations while a plan is built: where rows come from, and the linear query through which they go on.

A relation is a bag of weighted rows. Filters and projections only change the text of its linear query; what needs state
makes a node. A `Lazy` one is not made before someone needs its changes: until then, everything that can be said of the
rows of a key alone is added to its query instead of becoming a node of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa

from headwater.errors import SqlRefused
from headwater.log.spec import TopicSpec
from headwater.process import duck
from headwater.process.keyed.first import First
from headwater.process.keyed.forgetting import NOW, Forget
from headwater.process.keyed.join import Join
from headwater.process.keyed.latest import Latest
from headwater.process.keyed.operator import Operator
from headwater.process.keyed.recompute import Recompute
from headwater.process.keyed.top import Order, Top, cheap
from headwater.process.plan import CHANGES, OUT, Node, Plan, Read, Send
from headwater.process.sql.partial import partial_of
from headwater.process.sql.plain import plain_columns
from headwater.process.sql.pruning import prune
from headwater.process.sql.shown import shown_by
from headwater.process.sql.trial import answered
from headwater.records import OFFSET, PARTITION, WEIGHT


@dataclass(frozen=True)
class Part:
    """Rows of one origin: `sql` makes columns and `_weight` out of its `changes`."""

    origin: Scanned | Made | Lazy
    sql: str


@dataclass(frozen=True)
class Rel:
    columns: tuple[str, ...]
    parts: tuple[Part, ...]
    append_only: bool
    """Whether no row is ever taken away."""
    spread: tuple[str, ...] | None = None
    """The columns by whose hash rows are spread over buckets as they come out of their node; in this order."""
    unique: tuple[str, ...] | None = None
    """Columns that no two rows agree in."""
    ranks: Mapping[str, str] = field(default_factory=dict)
    """Columns that are ranks within a key of a lazy origin, by what they are called there."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Columns of times after which rows are past: only records up to so much (µs) after the value make them."""
    past: frozenset[str] = frozenset()
    """The names of event times behind the rows, whether or not they are still among the columns."""
    sessions: frozenset[str] = frozenset()
    """Columns in which rows of different sessions of a key differ."""

    @property
    def lazy(self) -> Lazy | None:
        origin = self.parts[0].origin
        return origin if len(self.parts) == 1 and isinstance(origin, Lazy) else None

    def project(self, columns: Iterable[tuple[str, str]]) -> Rel:
        """`(name, SQL)` over the columns of this one. An SQL that is a quoted column is known to be just that."""
        chosen = list(columns)
        texts = ", ".join(f"{sql} AS {duck.quoted(name)}" if sql != duck.quoted(name) else sql for name, sql in chosen)
        kept = {sql: name for name, sql in reversed(chosen)}

        def carried(names: Sequence[str] | None) -> tuple[str, ...] | None:
            if names is None or any(duck.quoted(name) not in kept for name in names):
                return None
            return tuple(kept[duck.quoted(name)] for name in names)

        bounds = {kept[duck.quoted(name)]: of for name, of in self.bounds.items() if duck.quoted(name) in kept}
        other = {_base(name) for name, _ in chosen} - {_base(name) for name in bounds}
        repeats = any("unnest(" in sql.lower() for _, sql in chosen)
        return replace(
            self,
            columns=tuple(name for name, _ in chosen),
            parts=self.each(f"SELECT {texts}{', ' if texts else ''}{WEIGHT} FROM ({{}})"),
            spread=carried(self.spread),
            unique=None if repeats else carried(self.unique),
            ranks={kept[duck.quoted(name)]: of for name, of in self.ranks.items() if duck.quoted(name) in kept},
            bounds=bounds,
            past=(self.past | {_base(name) for name, span in bounds.items() if span == 0}) - other,
            sessions=frozenset(kept[duck.quoted(name)] for name in self.sessions if duck.quoted(name) in kept),
        )

    def where(self, condition: str) -> Rel:
        return replace(self, parts=self.each(f"SELECT * FROM ({{}}) WHERE {condition}"))

    def renamed(self, prefix: str) -> Rel:
        """Each column under `prefix.column`: as the columns of a name in FROM."""
        return self.project((f"{prefix}.{name}", duck.quoted(name)) for name in self.columns)

    def each(self, form: str) -> tuple[Part, ...]:
        before, _, behind = form.partition("{}")
        return tuple(replace(part, sql=before + part.sql + behind) for part in self.parts)


@dataclass(eq=False)
class Scanned:
    """A topic, read once for all that ask."""

    spec: TopicSpec
    number: int
    columns: tuple[str, ...]
    metadata: bool = False
    sends: list[Send] = field(default_factory=list)
    level = -1

    @property
    def schema(self) -> pa.Schema:
        fields = [self.spec.stored.field(name) for name in self.columns]
        log_order = [pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]
        return pa.schema([*fields, *(log_order if self.metadata else [])])


@dataclass(eq=False)
class Made:
    """A node of the plan."""

    operator: Operator
    number: int
    level: int
    schema: pa.Schema
    sends: list[Send] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Lazy:
    """What will be a `Recompute`: `sql` over `in0`, `in1`, ..., each of which is spread by its key."""

    inputs: tuple[tuple[Rel, tuple[str, ...]], ...]
    sql: str
    keep: str | None = None
    always: bool = False
    rank_over: str | None = None
    """If ranks are computed over rows that are only added: a query that gives the rows of `in0` with their ranks."""
    order: Order | None = None
    """Of row numbers, by what."""
    top: tuple[str, int] | None = None
    """If only the first rows by it matter: what their number is called, and how many."""
    forget: Forget | None = None
    """What of its inputs may be forgotten as time goes on; where None, what lies by its key in the past may."""


class Build:
    """Reads and nodes, as they come to be."""

    def __init__(self, view: str, inputs: Mapping[str, TopicSpec], retain: int | None = None) -> None:
        self.view = view
        self.inputs = inputs
        self.retain = retain
        """For how long in event time (µs) records may still correct the view; None: for ever."""
        self._scanned: dict[str, Scanned] = {}
        self._made: list[Made] = []

    # --- where rows come from ---

    def scan(self, topic: str, columns: Sequence[str], *, history: bool = False) -> Rel:
        """The rows of a topic; of a table's `history` all rows that it ever had, none of which is taken away."""
        spec = self.inputs[topic]
        names = tuple(columns)
        if spec.upsert and not history:
            return self._upserts(spec, names)
        origin = self._scan(spec, (*names, WEIGHT) if spec.weighted else names)
        weight = WEIGHT if spec.weighted and not history else f"1::BIGINT AS {WEIGHT}"
        condition = f" WHERE {WEIGHT} > 0" if spec.weighted and history else ""
        if spec.upsert:
            self._scan(spec, ("_deleted",))
            condition = " WHERE NOT _deleted"
        sql = f"SELECT {duck.columns(names)}{', ' if names else ''}{weight} FROM {CHANGES}{condition}"
        unique = spec.key if spec.weighted and not history and set(spec.key) <= set(names) and spec.key else None
        timed = self.retain is not None and spec.kind == "stream" and spec.time in names
        bounds = {str(spec.time): 0} if timed else {}
        past = frozenset(bounds)
        return Rel(names, (Part(origin, sql),), history or not spec.weighted, unique=unique, bounds=bounds, past=past)

    def _scan(self, spec: TopicSpec, columns: Sequence[str], *, metadata: bool = False) -> Scanned:
        found = self._scanned.setdefault(spec.name, Scanned(spec, len(self._scanned), ()))
        wanted = {*found.columns, *columns}
        found.columns = tuple(name for name in spec.stored.names if name in wanted)
        found.metadata = found.metadata or metadata
        return found

    def _upserts(self, spec: TopicSpec, columns: Sequence[str]) -> Rel:
        origin = self._scan(spec, spec.stored.names, metadata=True)
        arriving = pa.schema([*spec.stored, pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())])
        operator = Latest(arriving, spec.key, time=spec.time, by="log", retain=None)
        known = next((each for each in self._made if each.operator == operator), None)
        if known is None:
            rows = Rel(
                tuple(arriving.names), (Part(origin, f"SELECT {duck.columns(arriving.names)} FROM {CHANGES}"),), True
            )
            known = self.node(operator, [(rows, spec.key)], [arriving])
        sql = f"SELECT {duck.columns(spec.schema.names)}, {WEIGHT} FROM {CHANGES}"
        made = Rel(tuple(spec.schema.names), (Part(known, sql),), False, spread=spec.key, unique=spec.key)
        return made.project((name, duck.quoted(name)) for name in columns)

    # --- nodes ---

    def node(
        self,
        operator: Operator,
        inputs: Sequence[tuple[Rel, tuple[str, ...]]],
        samples: Sequence[pa.Schema],
        *,
        to_all: Sequence[bool] = (),
        spread_by: Sequence[tuple[str, ...]] | None = None,
        first: First | None = None,
    ) -> Made:
        """A node with these inputs by port, each spread by its key, or by `spread_by` where that is another.

        With `first`, only those rows of topics travel to it.
        """
        made = [self.made(rel) for rel, _ in inputs]
        keys = list(spread_by) if spread_by is not None else [key for _, key in inputs]
        all_of = [*to_all, *([False] * (len(inputs) - len(to_all)))]
        stays = [
            not everywhere and _stays(rel, key, alone=len(inputs) == 1)
            for rel, key, everywhere in zip(made, keys, all_of, strict=True)
        ]
        level = 0
        for rel, stay in zip(made, stays, strict=True):
            for part in rel.parts:
                assert not isinstance(part.origin, Lazy)
                level = max(level, part.origin.level + (0 if stay else 1))
        number = len(self._made)
        for port, (rel, key, stay, everywhere) in enumerate(zip(made, keys, stays, all_of, strict=True)):
            for part in rel.parts:
                assert not isinstance(part.origin, Lazy)
                local = stay and part.origin.level == level
                spared = first if isinstance(part.origin, Scanned) else None
                spread = rel.spread if local and rel.spread is not None else key
                part.origin.sends.append(
                    Send(
                        part.sql,
                        spread,
                        number,
                        port,
                        everywhere,
                        local,
                        plain=plain_columns(part.sql),
                        partial=partial_of(part.sql),
                        first=spared,
                    )
                )
        node = Made(operator, number, level, answered(self.view, operator, samples[0]))
        self._made.append(node)
        return node

    def spread_after(self, rel: Rel, key: tuple[str, ...]) -> tuple[str, ...]:
        """By what rows are spread in a node with this single input: they stay where they are if they can."""
        spread = self.made(rel).spread
        return spread if spread is not None and _stays(self.made(rel), key, alone=True) else key

    def made(self, rel: Rel) -> Rel:
        """With nothing lazy left in it."""
        if not any(isinstance(part.origin, Lazy) for part in rel.parts):
            return rel
        parts = []
        spread = rel.spread
        for part in rel.parts:
            if isinstance(part.origin, Lazy):
                made, spread = self._recompute(part.origin, part.sql, rel)
                part = Part(made, part.sql if isinstance(made.operator, Top) else f"FROM {CHANGES}")  # noqa: PLW2901
            parts.append(part)
        return replace(rel, parts=tuple(parts), spread=spread if len(parts) == 1 else None, ranks={})

    def _recompute(self, lazy: Lazy, sql: str, rel: Rel) -> tuple[Made, tuple[str, ...] | None]:
        inputs = [(self.made(each), key) for each, key in lazy.inputs]
        forget = lazy.forget or self._forgotten(inputs)
        if lazy.top is not None and lazy.order is not None and forget is None:
            return self._top(lazy, inputs[0][0], inputs[0][1]), rel.spread
        schemas = tuple(self.schema(each).append(pa.field(WEIGHT, pa.int64())) for each, _ in inputs)
        operator = Recompute(
            schemas, tuple(key for _, key in inputs), absorbed(lazy, sql), lazy.keep, lazy.always, forget
        )
        known = next((each for each in self._made if each.operator == operator), None)
        stayed = len(inputs) == 1 and _stays(inputs[0][0], inputs[0][1], alone=True)
        node = known or self.node(operator, inputs, schemas)
        # Rows that stayed where they were are spread by fewer columns than the key; nobody may rely on the key then.
        return node, None if stayed and inputs[0][0].spread != inputs[0][1] else rel.spread

    def _forgotten(self, inputs: Sequence[tuple[Rel, tuple[str, ...]]]) -> Forget | None:
        """Of a key that is bound to a time, in all inputs, everything once it is past."""
        for place in range(len(inputs[0][1])):
            spans = [rel.bounds.get(key[place]) for rel, key in inputs]
            known = [span for span in spans if span is not None]
            if self.retain is not None and len(known) == len(spans):
                ends = [f"epoch_us({duck.quoted(key[place])}) + {max(known) + self.retain}" for _, key in inputs]
                keep = [
                    f"SELECT * FROM in{number} WHERE coalesce({end} >= (SELECT {NOW} FROM {NOW}), true)"
                    for number, end in enumerate(ends)
                ]
                return Forget(tuple(ends), tuple(keep))
        return None

    def _top(self, lazy: Lazy, rows: Rel, key: tuple[str, ...]) -> Made:
        assert lazy.top is not None
        assert lazy.order is not None
        schema = self.schema(rows).append(pa.field(WEIGHT, pa.int64()))
        rank, most = lazy.top
        operator = Top(schema, key, lazy.order, most, rank)
        known = next((each for each in self._made if each.operator == operator), None)
        order = cheap(lazy.order, schema)
        return known or self.node(operator, [(rows, key)], [schema], first=First(key, order, most) if order else None)

    def _spare_pairs(self) -> None:
        """A join whose pairs go nowhere but to a node that keeps the first of them makes no others."""
        for node in self._made:
            if not isinstance(node.operator, Join) or node.operator.net or len(node.sends) != 1:
                continue
            (send,) = node.sends
            top = self._made[send.node].operator if send.local else None
            if isinstance(top, Top) and (order := cheap(top.order, top.input)):
                first = First(top.key, order, top.most)
                if _named_alike(send, first):
                    node.operator = replace(node.operator, first=first)

    # --- asking DuckDB ---

    def schema(self, rel: Rel) -> pa.Schema:
        """The columns' types, without the weight."""
        part = rel.parts[0]
        if isinstance(part.origin, Lazy):
            samples = {
                f"in{place}": self.schema(each).empty_table() for place, (each, _) in enumerate(part.origin.inputs)
            }
            return self.ask(absorbed(part.origin, part.sql), **samples)
        made = self.ask(part.sql, **{CHANGES: part.origin.schema.empty_table()})
        return made.remove(made.get_field_index(WEIGHT)) if WEIGHT in made.names else made

    def ask(self, sql: str, **samples: pa.Table) -> pa.Schema:
        try:
            return duck.ask(sql, **samples).schema
        except duckdb.Error as error:
            why = str(error).split("\n\nLINE")[0].strip()
            raise SqlRefused(view=self.view, construct=f"DuckDB says: {why}", do="Correct the expression") from None

    # --- the end ---

    def plan(self, rel: Rel, *, sql: str, key: tuple[str, ...], schema: pa.Schema, oracle: str) -> Plan:
        out = self.made(rel)
        for part in out.parts:
            assert not isinstance(part.origin, Lazy)
            net = not rel.append_only and not isinstance(part.origin, Scanned) and not _tells_apart(part)
            whole = () if rel.append_only else tuple(schema.names)
            plain, shown = plain_columns(part.sql), shown_by(part.sql)
            part.origin.sends.append(Send(part.sql, key or whole, OUT, plain=plain, shown=shown, net=net))
        prune([*self._scanned.values()], self._made)
        self._spare_pairs()
        reads = tuple(
            Read(each.spec.name, each.columns, tuple(each.sends), each.metadata) for each in self._scanned.values()
        )
        nodes = tuple(Node(each.operator, each.level, tuple(each.sends)) for each in self._made)
        names = tuple(read.topic for read in reads)
        return Plan(self.view, sql, reads, nodes, schema, key, oracle=oracle, names=names)


def _named_alike(send: Send, first: First) -> bool:
    """Whether the columns by which the first are found have the same names before and after."""
    plain = dict(send.plain or ())
    return send.plain is not None and all(plain.get(name) == name for name in first.columns)


def _tells_apart(part: Part) -> bool:
    """Whether different rows of an operator that says nothing in vain stay different in the query."""
    origin, plain = part.origin, plain_columns(part.sql)
    if not isinstance(origin, Made) or not getattr(origin.operator, "netted", False) or plain is None:
        return False
    return {of for _, of in plain} == set(origin.schema.names)


def _base(name: str) -> str:
    return name.rpartition(".")[2].lower()


def absorbed(lazy: Lazy, sql: str) -> str:
    """The lazy query with the linear one that follows it, as one query without weights."""
    following = f"WITH {CHANGES} AS (SELECT *, 1::BIGINT AS {WEIGHT} FROM ({lazy.sql})) {sql}"
    return f"SELECT * EXCLUDE ({WEIGHT}) FROM ({following})"


def _stays(rel: Rel, key: tuple[str, ...], *, alone: bool) -> bool:
    """Whether rows are where their key belongs already: for a single input it is enough that a part of the key is."""
    if rel.spread is None or len(rel.parts) != 1:
        return False
    return set(rel.spread) <= set(key) if alone and rel.spread else rel.spread == key
