"""Jars for tests and benchmarks: fetched once with `mvn`, from whatever repository it is set up to use, and kept.

~/.cache/headwater/NAME/*.jar    has this name only when it is complete
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import HeadwaterError

FETCH_S = 600.0
TAIL_LINES = 25

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>headwater</groupId><artifactId>jars-for-tests</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


@dataclass(frozen=True)
class Artifact:
    group: str
    name: str
    version: str
    without: tuple[str, ...] = ()
    """Dependencies that it names and that are left out, as "group:name"; "*:*" is all of them."""

    def as_xml(self) -> str:
        left_out = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
            for group, _, name in (each.partition(":") for each in self.without)
        )
        return (
            f"    <dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version><exclusions>{left_out}</exclusions></dependency>"
        )


class JarsMissing(HeadwaterError):
    """Jars that are not in the cache could not be fetched, and why."""

    def __init__(self, *, name: str, why: str, do: str, tail: str = "") -> None:
        super().__init__(f"no jars of {name}: {why}", do=do)
        self.name, self.why, self.tail = name, why, tail
        if tail:
            self.args = (f"{self.args[0]}\nMaven's last words:\n{tail}",)


def jars(name: str, artifacts: Iterable[Artifact]) -> Path:
    """The folder of these artifacts' jars and of all that they need to run, fetched if it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"
    folder = cache / name
    if folder.is_dir():
        return folder
    mvn = shutil.which("mvn")
    if mvn is None:
        raise JarsMissing(name=name, why="Maven fetches them, and mvn is missing", do="Install it: apt install maven")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}.part-", dir=cache) as part:
        pom, fetched = Path(part) / "pom.xml", Path(part) / "jars"
        pom.write_text(POM.format(dependencies="\n".join(artifact.as_xml() for artifact in artifacts)))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
        try:
            told = subprocess.run(
                [mvn, "--quiet", "--batch-mode", "--file", str(pom), *goal],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=FETCH_S,
            )
        except subprocess.TimeoutExpired:
            why = f"fetching them took more than {FETCH_S:g} s"
            raise JarsMissing(name=name, why=why, do="Try again: Maven keeps what it has") from None
        if told.returncode != 0:
            tail = "\n".join(told.stdout.splitlines()[-TAIL_LINES:])
            do = "Check the network, and that this version exists"
            raise JarsMissing(name=name, why="Maven could not fetch them", do=do, tail=tail)
        try:
            fetched.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster: its jars are the same
                raise
    return folder
