"""DuckDB as a calculator: a query that is asked again answers what the rows are now, whatever was asked before."""

from __future__ import annotations

import threading

import duckdb
import pyarrow as pa
import pytest

from headwater.process import duck

SUMS = "SELECT k, sum(v)::BIGINT AS v FROM rows GROUP BY k ORDER BY k"


def rows(*pairs: tuple[object, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "v": pa.array([v for _, v in pairs], pa.int64())})


def test_asked_again_it_answers_over_other_rows() -> None:
    for count in (1, 5, 1, 0, 300):
        given = pa.table({"k": list(range(count)), "v": [7] * count}, pa.schema({"k": pa.int64(), "v": pa.int64()}))
        assert duck.run(SUMS, rows=given).num_rows == count


def test_the_same_query_over_other_columns_is_another_one() -> None:
    assert duck.run(SUMS, rows=rows((1, 2), (1, 3))).to_pylist() == [{"k": 1, "v": 5}]
    assert duck.run(SUMS, rows=rows(("a", 2))).to_pylist() == [{"k": "a", "v": 2}]
    assert duck.run(SUMS, rows=rows((1, 4))).to_pylist() == [{"k": 1, "v": 4}]


def test_many_rows_and_few_rows_are_answered_alike() -> None:
    many = rows(*((number % 10, 1) for number in range(duck.FEW + 10)))
    assert duck.run(SUMS, rows=many)["v"].to_pylist() == [(duck.FEW + 10) // 10] * 10
    assert duck.run(SUMS, rows=many.slice(0, 100))["v"].to_pylist() == [10] * 10


def test_after_a_query_that_fails_the_next_one_answers() -> None:
    risky = "SELECT CASE WHEN v = 0 THEN error('nothing') ELSE v::VARCHAR END AS said FROM rows"
    for _ in range(2):
        with pytest.raises(duckdb.Error, match="nothing"):
            duck.run(risky, rows=rows((1, 0)))
        assert duck.run(risky, rows=rows((1, 3)))["said"].to_pylist() == ["3"]


def test_more_queries_than_stay_prepared() -> None:
    for number in range(duck.KEPT + 20):
        assert duck.run(f"SELECT v + {number} AS v FROM rows", rows=rows((1, 1)))["v"].to_pylist() == [1 + number]


def test_times_are_in_utc_whichever_way() -> None:
    told = pa.table({"moment": pa.array([0], pa.timestamp("us", "UTC"))})
    for answer in (duck.run, duck.ask):
        assert answer("SELECT moment::VARCHAR AS said FROM rows", rows=told)["said"].to_pylist() == [
            "1970-01-01 00:00:00+00"
        ]


def test_each_thread_has_its_own() -> None:
    wrong: list[object] = []

    def ask(number: int) -> None:
        for turn in range(50):
            answer = duck.run(SUMS, rows=rows((number, turn))).to_pylist()
            if answer != [{"k": number, "v": turn}]:
                wrong.append(answer)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
