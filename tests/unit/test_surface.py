"""The shape of the house: public names, arrows between rooms, errors that travel."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from headwater import errors

SRC = Path(headwater.__file__).parent
ROOMS = {"log", "capture", "process", "serve", "decide", "console", "cli", "testing"}
SHARED = {"errors", "clock", "records", "typenames"}
ARROWS = {
    "log": set(),
    "capture": {"log"},
    "process": {"log"},
    "serve": {"log"},
    "decide": {"log"},
    "console": {"serve"},
    "testing": {"log", "capture", "process", "serve", "decide"},
    "cli": ROOMS,
}
DOORS = {"serve": "headwater.capture.intake"}
"""One part of a room that another may use: the server carries what is posted to it, intake makes records of it."""
HEAVY = {
    "pyspark": {"process"},
    "duckdb": {"process", "serve"},
    "numba": {"capture"},
    "psycopg": {"capture", "serve"},
    "pymysql": {"capture"},
    "pymysqlreplication": {"capture"},
}
FAMILIES = (
    errors.HeadwaterError,
    errors.CaptureError,
    errors.DecideError,
    errors.LogError,
    errors.ProcessError,
    errors.ServeError,
)


def test_all_is_the_public_surface() -> None:
    public = {
        name for name, value in vars(headwater).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public | {"errors", "frames", "stores"} == set(headwater.__all__)


def test_frames_offers_what_its_package_does() -> None:
    from headwater.process import frames

    assert headwater.frames.__all__ == frames.__all__
    assert [getattr(headwater.frames, name) for name in frames.__all__] == [getattr(frames, n) for n in frames.__all__]
    assert set(frames.__all__) <= set(dir(headwater.frames))


def test_spark_is_not_imported_until_it_is_needed() -> None:
    told = "import sys, headwater, headwater.frames; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=False).returncode == 0


def test_a_command_does_not_load_what_only_servers_and_queries_need() -> None:
    told = "import sys, headwater.cli.main; print([m for m in ('fastapi', 'sqlglot', 'duckdb') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", told], check=True, capture_output=True).stdout == b"[]\n"


def imports(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "headwater" and len(parts) > 1 and parts[1] in ROOMS else None


def wrong_arrows(room: str, file: Path) -> list[str]:
    allowed = ARROWS[room] | {room}
    door = DOORS.get(room, "nowhere")
    wrong = [m for m in imports(file) if room_of(m) not in (None, *allowed) and not f"{m}.".startswith(f"{door}.")]
    wrong += [m for m in imports(file) if m in ("headwater.app", "headwater.running") and room != "cli"]
    return wrong + [m for m in imports(file) if room not in HEAVY.get(m.split(".")[0], {room})]


@pytest.mark.parametrize("file", sorted(SRC.rglob("*.py")), ids=lambda file: str(file.relative_to(SRC)))
def test_arrows_between_rooms_point_one_way(file: Path) -> None:
    room = file.relative_to(SRC).parts[0]
    if room in ROOMS:
        assert wrong_arrows(room, file) == []
    elif file.stem in SHARED:
        assert [m for m in imports(file) if m.startswith("headwater") and m.split(".")[1] not in SHARED] == []


def test_the_check_of_arrows_catches_a_wrong_one(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text("import duckdb\nfrom headwater.process import duck\n")
    assert wrong_arrows("log", planted) == ["headwater.process", "headwater.process.duck", "duckdb"]


def every_error() -> list[type[errors.HeadwaterError]]:
    found, todo = [], [errors.HeadwaterError]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += kind.__subclasses__()
    return found


def example(kind: type[errors.HeadwaterError]) -> errors.HeadwaterError:
    samples = {"int": 7, "float": 1.5, "str": "words", "object": "x"}
    given: dict[str, object] = {}
    positional: list[object] = []
    for name, parameter in inspect.signature(kind).parameters.items():
        told = str(parameter.annotation)
        value = ("a", "b") if "Iterable" in told or "tuple" in told else samples[told.split(" ", maxsplit=1)[0]]
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            positional.append(value)
        else:
            given[name] = value
    return kind(*positional, **given)


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_pickles_and_says_what_to_do(kind: type[errors.HeadwaterError]) -> None:
    error = example(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert error.do or kind in FAMILIES


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_an_exit_code(kind: type[errors.HeadwaterError]) -> None:
    status, code = errors.codes(example(kind))
    assert 400 <= status < 600
    assert 0 < code < 126


def test_no_file_holds_a_second_product() -> None:
    long = {
        str(file.relative_to(SRC)): lines
        for file in SRC.rglob("*.py")
        if (lines := len(file.read_text().splitlines())) > 400
    }
    assert long == {}


def test_a_kafka_broker_for_tests_needs_no_duckdb_and_no_spark() -> None:
    asked = "import sys, headwater.testing.kafka; print([m for m in ('duckdb', 'pyspark') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_what_testing_offers_is_there() -> None:
    from headwater import testing

    for name in testing.__all__:
        assert inspect.isclass(getattr(testing, name))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        testing.nothing  # noqa: B018
