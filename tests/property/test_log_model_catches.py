"""The model is itself tried: each planted bug must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from headwater.log.embedded import append, trim
from headwater.log.embedded.upkeep import rollup
from tests.property.test_log_model import LogModel


def drops_a_record_when_rolling_up(patch: pytest.MonkeyPatch) -> None:
    real = rollup.write_chunk

    def planted(log: Any, topic: Any, place: Any, records: Any) -> Any:
        first, *others = records
        return real(log, topic, replace(place, rows=place.rows - 1), [first.slice(1), *others])

    patch.setattr(rollup, "write_chunk", planted)


def takes_a_repeated_sequence_for_a_new_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(append, "_admit", lambda transaction, wanted: None)


def ignores_versions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(append, "_check_versions", lambda transaction, wanted: None)


def forgets_to_move_the_start(patch: pytest.MonkeyPatch) -> None:
    def planted(catalog: Any, topic: Any, partition: int, start: int, *, now: int) -> None:
        given = (topic.id, partition, start)
        catalog.execute('DELETE FROM chunks WHERE topic = ? AND partition = ? AND "end" <= ?', given)

    from headwater.log.embedded.upkeep import retention

    patch.setattr(retention, "trim_to", planted)
    assert trim.trim_to is not planted


@pytest.mark.parametrize(
    "plant",
    [
        drops_a_record_when_rolling_up,
        takes_a_repeated_sequence_for_a_new_one,
        ignores_versions,
        forgets_to_move_the_start,
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    thorough = settings(
        max_examples=200,
        stateful_step_count=30,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[Phase.generate],
    )
    with pytest.raises(BaseException, match="."):
        run_state_machine_as_test(LogModel, settings=thorough)
