"""Which versions become current together.

After a switch, whatever is current reads only what is current: a view that goes to another version takes along those
that read it, and is taken along by those that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.errors import VersionRefused
from headwater.process.version import READY, Version


def switched(versions: Mapping[str, Sequence[Version]], target: Version) -> list[Version]:
    """The rows to write: every version that becomes current, and every one that no longer is."""
    current = {name: next((each for each in of if each.state == "current"), None) for name, of in versions.items()}
    made_by = {each.topic: each for of in versions.values() for each in of if each.state != "dropped"}
    chosen = {target.name: target}
    todo = [target]

    def choose(version: Version) -> None:
        if version.state not in READY:
            raise VersionRefused(
                view=target.name,
                why=f"version {target.version} goes with version {version.version} of {version.name!r}, "
                f"which is {version.state}",
                do=f"`headwater view rebuild {version.name} --app FILE` builds both",
            )
        if version.name in chosen:
            raise VersionRefused(
                view=target.name,
                why=f"what goes with version {target.version} would need two versions of {version.name!r} at once",
                do=f"`headwater view rebuild {version.name} --app FILE` builds all that read it anew",
            )
        chosen[version.name] = version
        todo.append(version)

    while todo:
        arriving = todo.pop()
        for topic in arriving.inputs.values():
            read = made_by.get(topic)
            if read is not None and _which(chosen.get(read.name, current[read.name])) != _which(read):
                choose(read)
        leaving = current[arriving.name]
        for reader in current.values():
            if (
                reader is None
                or leaving is None
                or reader.name in chosen
                or leaving.topic not in reader.inputs.values()
            ):
                continue
            ready = [
                each for each in versions[reader.name] if each.state in READY and arriving.topic in each.inputs.values()
            ]
            if not ready:
                raise VersionRefused(
                    view=arriving.name,
                    why=f"{reader.name!r} reads it and has no version that was built on version {arriving.version}",
                    do=f"`headwater view rebuild {arriving.name} --app FILE` builds that too; "
                    f"if {reader.name!r} is no longer declared, `headwater view drop` it",
                )
            choose(ready[-1])
    return [row for version in chosen.values() for row in _exchanged(current[version.name], version)]


def _exchanged(leaving: Version | None, arriving: Version) -> list[Version]:
    rows = [replace(arriving, state="current")]
    if leaving is not None:
        # What is newer than the current one stands ready to be switched to, what is older to be gone back to.
        rows.append(replace(leaving, state="previous" if leaving.version < arriving.version else "built"))
    return rows


def _which(version: Version | None) -> tuple[str, int] | None:
    return None if version is None else (version.name, version.version)
