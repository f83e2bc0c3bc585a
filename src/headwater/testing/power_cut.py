"""What a disk may hold after the current fails, played from a recorded journal.

    strict    only what was synced is there: bytes of a file by a sync of the file, names by a sync of their folder
    lucky     also some of the rest, at random: of each page of a file any state since its last sync, of each size any,
              of each name that was made, changed or removed, that it was or was not

A name that is there whose file was never synced is there with whatever of its bytes is. A page is written whole, so of
several writes to one page it is the first few that are there; between pages, files and names there is no order at all.
That is less than any file system promises. Memory that SQLite shares between processes (-shm) is never there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headwater.testing.recording_disk import Act, Kind

PAGE = 4096
NEVER_THERE = "-shm"


@dataclass
class _File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Since the last sync: where and what was written; None: the size that it was cut or drawn to."""

    def write(self, at: int, data: bytes) -> None:
        _put(self.content, at, data)
        self.since.append((at, data))

    def truncate(self, size: int) -> None:
        _resize(self.content, size)
        self.since.append((size, None))

    def sync(self) -> None:
        self.synced = bytes(self.content)
        self.since.clear()

    def strict(self) -> bytes:
        return self.synced

    def lucky(self, chance: random.Random) -> bytes:
        count = len(self.since)
        sized = chance.randint(0, count)  # so many of the acts have reached the file's size
        cut = max((number for number, (_, data) in enumerate(self.since[:sized]) if data is None), default=-1)
        reached: dict[int, int] = {}  # so many have reached a page; none is older than a truncation that is there

        def has_reached(page: int, number: int) -> bool:
            if page not in reached:
                reached[page] = max(chance.choice((0, count, chance.randint(0, count))), cut + 1)
            return number < reached[page]

        found = bytearray(self.synced)
        size = len(found)
        for number, (at, written) in enumerate(self.since):
            data = written if written is not None else bytes(max(len(found) - at, 0))
            if number < sized:
                size = at if written is None else max(size, at + len(data))
            for start in range(at - at % PAGE, at + len(data), PAGE):
                if has_reached(start // PAGE, number):
                    low, high = max(start, at), min(start + PAGE, at + len(data))
                    _put(found, low, data[low - at : high - at])
        _resize(found, size)
        return bytes(found)


@dataclass
class _Folder:
    entries: dict[str, _Node] = field(default_factory=dict)
    synced: dict[str, _Node] = field(default_factory=dict)
    since: list[dict[str, _Node | None]] = field(default_factory=list)
    """Since the last sync: names that changed together; None: removed."""

    def change(self, names: dict[str, _Node | None]) -> None:
        _change(self.entries, names)
        self.since.append(names)

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.since.clear()

    def strict(self) -> dict[str, _Node]:
        return self.synced

    def lucky(self, chance: random.Random) -> dict[str, _Node]:
        found = dict(self.synced)
        for names in self.since:
            if chance.random() < 0.5:
                _change(found, names)
        return found


_Node = _File | _Folder


class RecordedDisk:
    """The disk as it stands after some acts of a journal. `root` itself was there, and durable, before the first."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._top = _Folder()

    def apply(self, act: Act) -> None:
        self._APPLY[act.kind](self, act)

    def lay_out(self, target: Path, *, chance: random.Random | None = None) -> None:
        """Write into the empty folder what is there if the current fails now: strictly, or with some luck."""
        _lay_out(self._top, target, chance)

    def lay_out_uncut(self, target: Path) -> None:
        """As running programs see it now, synced or not."""
        for path, content in _uncut(self._top, target):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _created(self, act: Act) -> None:
        folder, name = self._parent(act.path)
        folder.change({name: _File()})

    def _folder_made(self, act: Act) -> None:
        folder, name = self._parent(act.path)
        folder.change({name: _Folder()})

    def _written(self, act: Act) -> None:
        self._file(act.path).write(act.at, act.data)

    def _truncated(self, act: Act) -> None:
        self._file(act.path).truncate(act.at)

    def _synced(self, act: Act) -> None:
        self._node(act.path).sync()

    def _renamed(self, act: Act) -> None:
        (old, was), (new, name) = self._parent(act.path), self._parent(act.other)
        node = old.entries[was]
        if old is new:
            old.change({was: None, name: node})
        else:
            new.change({name: node})
            old.change({was: None})

    def _linked(self, act: Act) -> None:
        folder, name = self._parent(act.other)
        folder.change({name: self._node(act.path)})

    def _removed(self, act: Act) -> None:
        folder, name = self._parent(act.path)
        folder.change({name: None})

    _APPLY: dict[Kind, Callable[[RecordedDisk, Act], None]] = {  # noqa: RUF012
        Kind.CREATED: _created,
        Kind.FOLDER_MADE: _folder_made,
        Kind.WRITTEN: _written,
        Kind.TRUNCATED: _truncated,
        Kind.SYNCED: _synced,
        Kind.RENAMED: _renamed,
        Kind.LINKED: _linked,
        Kind.UNLINKED: _removed,
        Kind.FOLDER_REMOVED: _removed,
        Kind.MARK: lambda disk, act: None,
    }

    def _node(self, path: str) -> _Node:
        node: _Node = self._top
        for name in Path(path).relative_to(self._root).parts:
            assert isinstance(node, _Folder), f"{path}: a file in the middle"
            node = node.entries[name]
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        folder = self._node(str(Path(path).parent))
        assert isinstance(folder, _Folder), f"{path}: not in a folder"
        return folder, Path(path).name

    def _file(self, path: str) -> _File:
        node = self._node(path)
        assert isinstance(node, _File), f"{path}: not a file"
        return node


def _lay_out(folder: _Folder, target: Path, chance: random.Random | None) -> None:
    for name, node in (folder.lucky(chance) if chance else folder.strict()).items():
        if name.endswith(NEVER_THERE):
            continue
        if isinstance(node, _Folder):
            (target / name).mkdir()
            _lay_out(node, target / name, chance)
        else:
            (target / name).write_bytes(node.lucky(chance) if chance else node.strict())


def _uncut(folder: _Folder, target: Path) -> list[tuple[Path, bytes]]:
    found: list[tuple[Path, bytes]] = []
    for name, node in folder.entries.items():
        if isinstance(node, _Folder):
            found += _uncut(node, target / name)
        elif not name.endswith(NEVER_THERE):
            found.append((target / name, bytes(node.content)))
    return found


def _put(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def _change(entries: dict[str, _Node], names: dict[str, _Node | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
