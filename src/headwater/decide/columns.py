"""Events as rows: one nullable column a field, shared by all events that have a field of that name.

So a view in SQL sees fields as columns: `sum(amount) FILTER (type = 'Deposited')`. Beside the fields stand

    id          the aggregate          version   which of its events this is, from 1
    type        the event's class      revision  of the class's fields, for upcasters
    at          when it was decided    command_id  of the command that it answers, if that had one

Plain types and lists of them have columns of their type; all else (other dataclasses, dicts) is JSON text. What is
evolved is what will be read again: an event that a row cannot hold as it is, is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from headwater.decide.spec import DeciderSpec
from headwater.errors import BadDecider, HistoryBroken
from headwater.typenames import TIMESTAMP, parse_type

OWN = {
    "id": pa.string(),
    "version": pa.int64(),
    "type": pa.string(),
    "revision": pa.int64(),
    "at": TIMESTAMP,
    "command_id": pa.string(),
}
"""The columns that every event has."""

_PLAIN = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime: TIMESTAMP,
    date: pa.date32(),
    Decimal: pa.decimal128(38, 9),
    uuid.UUID: pa.string(),
}
_EXACT = (int, float, str, bool, bytes)
"""Values of exactly these types are read again as they are."""


@dataclasses.dataclass(frozen=True)
class Field:
    name: str
    type: pa.DataType
    exact: type | None
    optional: bool
    to_column: Callable[[Any], Any] | None
    """None: as it is."""
    from_column: Callable[[Any], Any] | None


class Unfit(Exception):
    """An event that a row cannot hold as it is, in words."""


class EventRows:
    """From events to rows of the topic and back."""

    def __init__(self, spec: DeciderSpec) -> None:
        self._spec = spec
        self._classes = {kind.__name__: kind for kind in spec.events}
        self._fields = {kind: fields_of(kind, spec.name) for kind in spec.events}
        self._revisions = {kind: spec.revision_of(kind.__name__) for kind in spec.events}
        self._read = {kind: reader(kind) for kind in spec.events}
        self.schema = self._schema()

    def _schema(self) -> pa.Schema:
        found = dict(OWN)
        for kind, fields in self._fields.items():
            for field in fields:
                if field.name in OWN or field.name.startswith("_"):
                    why = f"field {field.name!r} of event {kind.__name__} has the name of a column that every event has"
                    raise BadDecider(decider=self._spec.name, why=why, do=f"Rename it; kept: {', '.join(OWN)}, _...")
                if found.setdefault(field.name, field.type) != field.type:
                    told = f"{kind.__name__} has it as {field.type}, another as {found[field.name]}"
                    why = f"events do not agree about the field {field.name!r}: {told}"
                    raise BadDecider(
                        decider=self._spec.name, why=why, do="Rename one: a field is a column of the topic"
                    )
        return pa.schema(list(found.items()))

    def row(self, event: Any) -> dict[str, Any]:
        """The columns of its class, its fields and its revision; `Unfit` if it would be read as something else."""
        kind = type(event)
        if kind not in self._fields:
            raise Unfit(f"gave {event!r}, which is none of its events ({', '.join(self._classes)})")
        row: dict[str, Any] = {"type": kind.__name__, "revision": self._revisions[kind]}
        sure = True
        for field in self._fields[kind]:
            value = getattr(event, field.name)
            if value is not None:
                sure = sure and type(value) is field.exact
                value = value if field.to_column is None else _converted(field, value)
            else:
                sure = sure and field.optional
            row[field.name] = value
        if not sure:
            self._check(event, row)
        return row

    def _check(self, event: Any, row: dict[str, Any]) -> None:
        told = f"gave {event!r}, which could not be read again from its row"
        try:
            kind = type(event)
            columns = [pa.array([row[field.name]], field.type).to_pylist()[0] for field in self._fields[kind]]
            again = self._current(kind, {f.name: value for f, value in zip(self._fields[kind], columns, strict=True)})
        except Exception as error:
            raise Unfit(f"{told}: {in_words(error)}") from error
        if again != event:
            raise Unfit(f"{told} as it is, but as {again!r}")

    def event(self, row: Mapping[str, Any]) -> Any:
        """The event of a stored row, brought up to today's revision."""
        name, number = row["type"], row["revision"]
        kind = self._classes.get(name)
        if kind is not None and number == self._revisions[kind]:
            return self._checked(kind, row)
        fields = {column: value for column, value in row.items() if column not in OWN and value is not None}
        while (name, number) in self._spec.upcasters:
            given = self._spec.upcasters[name, number](fields)
            if type(given) in self._fields:
                return given
            fields, number = dict(given), number + 1
        if kind is None or number != self._revisions[kind]:
            raise HistoryBroken(
                decider=self._spec.name,
                aggregate=row["id"],
                why=f"event {row['version']} is {name} of revision {number}, which this code does not know",
                do=f"Name its class in events=, or give an upcaster for ({name!r}, {number})",
            )
        return self._checked(kind, fields)

    def _checked(self, kind: type, columns: Mapping[str, Any]) -> Any:
        try:
            return self._current(kind, columns)
        except ValueError as error:  # pydantic's, and what a class's own checks raise
            raise HistoryBroken(
                decider=self._spec.name,
                aggregate=str(columns.get("id", "")),
                why=f"a stored {kind.__name__} does not fit its class: {in_words(error)}",
                do=f"Give an upcaster for ({kind.__name__!r}, {self._revisions[kind]}): old events stay as they are",
            ) from error

    def _current(self, kind: type, columns: Mapping[str, Any]) -> Any:
        given = {}
        for field in self._fields[kind]:
            value = columns.get(field.name)
            if value is not None:
                given[field.name] = value if field.from_column is None else field.from_column(value)
            elif field.optional:
                given[field.name] = None  # else it was added later, and has a default
        return self._read[kind](given)


def reader(kind: type) -> Callable[[Mapping[str, Any]], Any]:
    """From fields to an instance; enums, decimals, tuples and the like as the class has them."""
    from pydantic import TypeAdapter

    read: Callable[[Mapping[str, Any]], Any] = TypeAdapter(kind).validate_python
    return read


def hints_of(kind: type) -> dict[str, Any]:
    """The fields of a dataclass or model, with their types."""
    hints = get_type_hints(kind, include_extras=True)
    model: Any = kind
    names = [f.name for f in dataclasses.fields(model)] if dataclasses.is_dataclass(kind) else list(model.model_fields)
    return {name: hints[name] for name in names}


def fields_of(kind: type, decider: str) -> list[Field]:
    try:
        return [_field(name, hint) for name, hint in hints_of(kind).items()]
    except NameError as error:
        why = f"the types of {kind.__name__} cannot be found: {error}"
        raise BadDecider(decider=decider, why=why, do="Define its classes at the top of a module") from error


def _field(name: str, hint: Any) -> Field:
    given = None
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        given = next((parse_type(mark, column=name) for mark in marks if isinstance(mark, str)), None)
    hint, optional = _without_none(hint)
    type_, to_column = _column(hint)
    if given is not None:
        return Field(name, given, None, optional, None, None)
    if type_ is not None:
        return Field(name, type_, hint if hint in _EXACT else None, optional, to_column, None)
    from pydantic import TypeAdapter

    adapter = TypeAdapter(hint)
    return Field(
        name, pa.string(), None, optional, lambda value: adapter.dump_json(value).decode(), adapter.validate_json
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) < len(get_args(hint)):
            return (rest[0] if len(rest) == 1 else Union[tuple(rest)]), True  # noqa: UP007
    return hint, hint is Any


def _column(hint: Any) -> tuple[pa.DataType | None, Callable[[Any], Any] | None]:
    """The column of a type, and how values get there; None for what goes as JSON text."""
    if hint in _PLAIN:
        return _PLAIN[hint], str if hint is uuid.UUID else None
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _common({type(each.value) for each in hint}), lambda value: value.value
    if get_origin(hint) is Literal:
        return _common({type(each) for each in get_args(hint)}), None
    arguments = get_args(hint)
    if get_origin(hint) is list or (get_origin(hint) is tuple and arguments[1:] == (...,)):
        inner, to_column = _column(arguments[0])
        if inner is not None and to_column is None:
            return pa.list_(inner), list
    return None, None


def _common(kinds: set[type]) -> pa.DataType | None:
    return _PLAIN.get(kinds.pop()) if len(kinds) == 1 else None


def _converted(field: Field, value: Any) -> Any:
    assert field.to_column is not None
    try:
        return field.to_column(value)
    except Exception as error:
        raise Unfit(f"gave {value!r} as {field.name!r}: {in_words(error)}") from error


def in_words(error: Exception) -> str:
    """On one line; of pydantic's findings the first, with its field."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"field {where!r}: {first['msg'].lower()}" if where else first["msg"].lower()
