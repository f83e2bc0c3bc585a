"""Flink's side of the benchmark: runs in the interpreter that has PyFlink, and has nothing of ours.

One JSON object a line comes in on standard input, one goes out on standard output: {"answer": ...} or {"error": text}.

    {"do": "set", "settings": {...}}           settings of the jobs that follow
    {"do": "execute", "sql": ...}              a statement that defines something
    {"do": "scans", "sql": ...}                -> [[table, [columns]], ...] that the query reads, once optimized
    {"do": "run", "queries": [...]}            -> seconds of one job that runs them all into nothing
    {"do": "changes", "sql": ..., "file": ...} the query's changes as lines of JSON: [kind, values]; -> how many
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from typing import IO, Any

SCAN = re.compile(r"TableSourceScan\(table=\[\[\w+, \w+, (\w+)(?:, (.*?))?\]\], fields=\[(.*?)\]\)")


def main() -> None:
    # Java writes to the standard output that it inherits: answers keep the real one to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from pyflink.table import EnvironmentSettings, TableEnvironment

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    _tell(answers, {"answer": "ready"})
    for line in sys.stdin:
        wish = json.loads(line)
        try:
            _tell(answers, {"answer": DOING[wish.pop("do")](environment, **wish)})
        except Exception:  # noqa: BLE001
            lines = traceback.format_exc().splitlines()
            _tell(answers, {"error": "\n".join(line for line in lines if not line.startswith("\tat "))})


def _tell(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _set(environment: Any, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        environment.get_config().set(name, value)


def _execute(environment: Any, sql: str) -> None:
    environment.execute_sql(sql)


def _scans(environment: Any, sql: str) -> list[tuple[str, list[str]]]:
    plan = environment.explain_sql(sql).split("== Optimized Execution Plan ==")[1]
    found = {(table, fields) for table, _, fields in SCAN.findall(plan)}
    return [(table, fields.split(", ")) for table, fields in sorted(found)]


def _run(environment: Any, queries: list[str]) -> float:
    from pyflink.table import TableDescriptor

    statements = environment.create_statement_set()
    for sql in queries:
        nothing = TableDescriptor.for_connector("blackhole").build()
        statements.add_insert(nothing, environment.sql_query(sql))
    client = statements.execute().get_job_client()
    # Without what it takes to plan the query and to start the cluster inside this JVM.
    return client.get_job_execution_result().result().get_net_runtime() / 1000


def _changes(environment: Any, sql: str, file: str) -> int:
    count = 0
    with environment.execute_sql(sql).collect() as rows, open(file, "w") as lines:
        for count, row in enumerate(rows, 1):  # noqa: B007
            lines.write(json.dumps([str(row.get_row_kind()), list(row)], default=str) + "\n")
    return count


DOING = {"set": _set, "execute": _execute, "scans": _scans, "run": _run, "changes": _changes}

if __name__ == "__main__":
    main()
