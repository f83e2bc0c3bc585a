"""The example: written to both, database and cache come to disagree; captured, they never do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "dual_write" / "run.py"


def test_two_clients_disagree_when_they_write_to_both_and_never_with_capture() -> None:
    ran = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["disagreed_after"] is not None
    assert told["agreed"] == told["rounds"] == 50
    assert told["went_back"] == 0
