"""How a view is kept up to date, for people: what is read, the operators, their keys and state, and what is linear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.process.plan import OUT, Plan, Send


def explain(plan: Plan, state: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One dict a step: step, what, key, from, spread (how many times rows were spread before), rows, bytes, linear.

    `state` is what `keyed.inspect.summary` tells. A step without rows and bytes keeps nothing: it is linear, and runs
    inside the task of the step before.
    """
    held: dict[str, list[int]] = {}
    for each in state:
        sizes = held.setdefault(str(each["operator"]).partition(" ")[0], [0, 0])
        sizes[0] += each["rows"]
        sizes[1] += each["bytes"]
    steps = []
    for read in plan.reads:
        what = f"read {read.topic}({', '.join(name for name in read.columns if not name.startswith('_'))})"
        steps.append(_step(f"read {read.topic}", what, read.sends, plan, (), None, None))
    for number, node in enumerate(plan.nodes):
        rows, size = held.get(str(number), [0, 0])
        name = type(node.operator).__name__
        what = f"{name}{_told(node.operator)}"
        steps.append(_step(str(number), what, node.sends, plan, _key(node.operator), (rows, size), node.level + 1))
    return steps


def _step(
    step: str,
    what: str,
    sends: Sequence[Send],
    plan: Plan,
    key: Sequence[str],
    size: tuple[int, int] | None,
    spread: int | None,
) -> dict[str, Any]:
    rows, held = size if size is not None else (None, None)
    return {
        "step": step,
        "what": what,
        "key": ", ".join(key),
        "to": "; ".join(_target(send, plan) for send in sends),
        "spread": spread or 0,
        "rows": rows if rows is not None else "",
        "bytes": held if held is not None else "",
        "linear": " | ".join(dict.fromkeys(send.sql or "" for send in sends if send.sql)),
    }


def _target(send: Send, plan: Plan) -> str:
    if send.node == OUT:
        return f"view {plan.view}"
    how = " in place" if send.local else " to all" if send.to_all else f" by ({', '.join(send.key)})"
    return f"{send.node}.{send.port}{how}"


def _key(operator: Any) -> Sequence[str]:
    for name in ("keys", "key", "left_key"):
        found = getattr(operator, name, None)
        if found:
            return found[0] if isinstance(found[0], tuple) else found
    return ()


def _told(operator: Any) -> str:
    """What an operator does beyond its key, in a few words."""
    told = []
    if hasattr(operator, "parts"):
        told.append(" + ".join(operator.parts))
    if getattr(operator, "on", None):
        told.append(f"on {operator.on}")
    if getattr(operator, "keep", None):
        told.append("keeps the first ones only")
    if getattr(operator, "until", None):
        told.append(f"until {operator.until}")
    return f" ({'; '.join(told)})" if told else ""
