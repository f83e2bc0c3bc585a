"""What the documents show runs, and the files they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_readmes_program_runs(tmp_path: Path) -> None:
    first, second = blocks("README.md", "python")
    names: dict[str, object] = {"__name__": "shop"}
    exec(first.replace("file:data", f"file:{tmp_path / 'log'}"), names)
    exec(second, names)
    app = names["app"]
    assert app.topics["clicks"].read().num_rows == 1  # type: ignore[attr-defined]
    app.close()  # type: ignore[attr-defined]


def test_the_programs_of_intake_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "shop"}
    for block in blocks("docs/intake.md", "python"):
        exec(block, names)
    app = names["app"]
    assert app.topics["orders"].read().num_rows == 3  # type: ignore[attr-defined]
    assert {"metrics", "lines", "clicks", "clicks.dead"} <= set(app.topics)  # type: ignore[attr-defined]
    app.close()  # type: ignore[attr-defined]


def test_what_is_shown_of_reading_views_runs(tmp_path: Path) -> None:
    (shown,) = blocks("docs/reading.md", "python")
    names: dict[str, object] = {}
    exec(shown.replace("file:data", f"file:{tmp_path / 'log'}"), names)
    names["app"].close()  # type: ignore[attr-defined]


def test_the_account_of_the_commands_document_runs(tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "bank"}
    for block in blocks("docs/commands.md", "python"):
        source = block.replace("file:data", f"file:{tmp_path / 'log'}")
        exec(compile(source, "docs/commands.md", "exec", dont_inherit=True), names)
    names["app"].close()  # type: ignore[attr-defined]


def test_the_bank_of_the_examples_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (ROOT / "examples" / "bank.py").read_text().replace("file:data/bank", f"file:{tmp_path / 'log'}")
    exec(compile(source, "examples/bank.py", "exec"), {"__name__": "__main__"})
    told = capsys.readouterr().out
    assert "counted once: True" in told
    assert "now: Account(email='alice@example.org', balance=70)" in told


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text


def test_the_queries_of_the_format_run_on_a_catalog(tmp_path: Path) -> None:
    import headwater as hw

    hw.open(f"file:{tmp_path / 'log'}").close()
    catalog = apsw.Connection(str(tmp_path / "log" / "catalog.db"))
    (queries,) = blocks("docs/format.md", "sql")
    given = {"topic": 1, "partition": 0, "from": 0, "until": 9, "number": 3, "producer": "p"}
    ran = [catalog.execute(query, given).fetchall() for query in queries.split(";") if query.strip()]
    assert ran == [[], [], []]


def test_the_format_document_lists_every_table_and_column(tmp_path: Path) -> None:
    import headwater as hw

    hw.open(f"file:{tmp_path / 'log'}").close()
    catalog = apsw.Connection(str(tmp_path / "log" / "catalog.db"))
    told = dict(re.findall(r"^\| `(\w+)` \| `([\w, ]+)` \|", (ROOT / "docs/format.md").read_text(), re.MULTILINE))
    found = {}
    for (table,) in catalog.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        found[table] = ", ".join(row[1] for row in catalog.execute(f"PRAGMA table_info({table})"))
    assert told == found


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md"])
def test_links_and_named_files_are_there(document: str) -> None:
    text = (ROOT / document).read_text()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / link).exists(), link
    for name in re.findall(r"`((?:log|process|serve|console|cli)/[\w/]+\.py)`", text):
        assert (ROOT / "src" / "headwater" / name).exists(), name
