"""Commands, checked before anything is decided: of a class of the decider, with fields of the right types."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from headwater.decide.columns import hints_of, in_words
from headwater.decide.spec import DeciderSpec
from headwater.errors import BadCommand

MOST_ID = 500
"""Characters of an aggregate's id, and of a command's."""


class CommandClasses:
    """Types are taken strictly: "10" is no number, nor is true; what JSON cannot say otherwise (times, decimals,
    enums) may be text there."""

    def __init__(self, spec: DeciderSpec) -> None:
        self._name = spec.name
        self._classes = {kind.__name__: kind for kind in spec.commands}
        self._of_json = {kind: _json_reader(kind) for kind in spec.commands}
        self._check = {kind: _checker(kind) for kind in spec.commands if dataclasses.is_dataclass(kind)}

    def parsed(self, kind: str, payload: Mapping[str, Any]) -> Any:
        """The command of that class with these fields, as JSON has them."""
        if kind not in self._classes:
            raise self._bad(kind, "no such command", f"Commands here: {', '.join(self._classes)}")
        if not isinstance(payload, Mapping):
            raise self._bad(kind, f"its fields are {type(payload).__name__}, not an object", "Send a JSON object")
        try:
            text = json.dumps(dict(payload), default=str, allow_nan=False)
            return self._of_json[self._classes[kind]](text)
        except (ValueError, TypeError) as error:
            raise self._unfit(kind, error) from error

    def checked(self, command: Any) -> Any:
        """A command made in Python, as it is, if its fields are of their types."""
        kind = type(command)
        if kind not in self._of_json:
            do = f"Commands here: {', '.join(self._classes)}"
            raise self._bad(kind.__name__, f"{command!r} is no command of this decider", do)
        if kind in self._check:
            try:
                self._check[kind](command)
            except (ValueError, TypeError) as error:
                raise self._unfit(kind.__name__, error) from error
        return command

    def _unfit(self, kind: str, error: Exception) -> BadCommand:
        fields = ", ".join(f"{name}: {_shown(hint)}" for name, hint in hints_of(self._classes[kind]).items())
        return self._bad(kind, in_words(error), f"Its fields: {fields or 'none'}")

    def _bad(self, kind: str, why: str, do: str) -> BadCommand:
        return BadCommand(decider=self._name, command=str(kind), why=why, do=do)

    def named(self, given: Any, what: str) -> str:
        """An id of an aggregate or a command: text that is not empty, and not a document."""
        if not isinstance(given, str) or not 0 < len(given) <= MOST_ID or not given.isprintable():
            do = f"Use 1 to {MOST_ID} printable characters"
            raise BadCommand(decider=self._name, command=what, why=f"{str(given)[:60]!r} is no id", do=do)
        return given


def _model(kind: type) -> Any:
    """The fields of a dataclass as a strict model of pydantic's, with its defaults."""
    from pydantic import ConfigDict, Field, create_model

    every: Any = kind
    fields: dict[str, Any] = {}
    hints = hints_of(kind)
    for field in dataclasses.fields(every):
        default: Any = ...
        if field.default is not dataclasses.MISSING:
            default = Field(default=field.default)
        elif field.default_factory is not dataclasses.MISSING:
            default = Field(default_factory=field.default_factory)
        fields[field.name] = (hints[field.name], default)
    config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
    return create_model(kind.__name__, __config__=config, **fields)


def _json_reader(kind: type) -> Callable[[str], Any]:
    if not dataclasses.is_dataclass(kind):
        model: Any = kind

        def of_model(text: str) -> Any:
            unknown = sorted(set(json.loads(text)) - set(model.model_fields))
            if unknown:
                raise ValueError(f"no such field: {unknown[0]!r}")
            return model.model_validate_json(text)

        return of_model
    strict = _model(kind)
    names = [field.name for field in dataclasses.fields(kind)]

    def read(text: str) -> Any:
        found = strict.model_validate_json(text)
        return kind(**{name: getattr(found, name) for name in names})

    return read


def _checker(kind: type) -> Callable[[Any], Any]:
    strict = _model(kind)
    every: Any = kind
    names = [field.name for field in dataclasses.fields(every)]
    validate = strict.__pydantic_validator__.validate_python
    return lambda command: validate({name: getattr(command, name) for name in names})


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
