"""All files that a pattern names, and those that it named before and that may still grow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from headwater.capture.feeds.files import HEAD_BYTES, IDLE_S, Growing, by_inode, named_by, opened


class Watched:
    """In the order in which files were first seen, so that what was rotated away is read before what came after it."""

    def __init__(self, pattern: str, known: Iterable[Growing], *, at_end: bool) -> None:
        self._pattern = pattern
        self._at_end = at_end
        self.files: dict[str, Growing] = {file.key: file for file in known}
        self.looks = 0
        self.alert = ""
        self._turn = 0
        self._restore()

    def look(self) -> list[str]:
        """New files, files with other names, files that are gone; returns the keys of those to forget."""
        found = named_by(self._pattern)
        self.alert = ""
        for key, (path, size) in found.items():
            file = self.files.get(key)
            if file is None:
                self._add(key, path)
            elif file.descriptor is None and size != file.seen:
                self._open(file, path)
        forgotten = []
        for key, file in list(self.files.items()):
            idle = time.monotonic() - file.moved_s > IDLE_S and file.size == file.seen
            if file.descriptor is not None and idle:
                file.close()
            if file.descriptor is None and key not in found and (idle or not self._found_elsewhere(file)):
                del self.files[key]
                forgotten.append(key)
        self._at_end = False
        self.looks += 1
        return forgotten

    def to_read(self) -> list[Growing]:
        """Files with something new. Of those that were one after the other under the same name, only the first."""
        first: dict[str, Growing] = {}
        for file in self.files.values():
            if file.size == file.seen:
                file.read_at_look = self.looks
            elif file.descriptor is not None:
                first.setdefault(file.path, file)
        found = list(first.values())
        self._turn += 1
        start = self._turn % max(1, len(found))  # so that none waits for others for ever
        return found[start:] + found[:start]

    def behind_bytes(self) -> int:
        return sum(max(0, file.size - file.offset) for file in self.files.values())

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def _restore(self) -> None:
        """What an earlier run knew: is it still what it was?"""
        named = named_by(self._pattern)
        for file in list(self.files.values()):
            path = named[file.key][0] if file.key in named else by_inode(os.path.dirname(file.path) or ".", file.key)
            if path is not None and self._open(file, path):
                if file.size < file.offset or not file.is_known():
                    file.begin_again()
                elif file.size == file.seen and file.key in named:
                    file.close()

    def _add(self, key: str, path: str) -> None:
        file = Growing(key, path)
        if self._open(file, path):
            self.files[key] = file
            if self._at_end:
                _pass_by(file)

    def _open(self, file: Growing, path: str) -> bool:
        try:
            found = opened(path)
        except OSError as error:
            self.alert = f"cannot read {path}: {error.strerror}"
            return False
        if found is None:
            return False
        descriptor, key = found
        if key != file.key:  # renamed at this moment: the next look finds it
            os.close(descriptor)
            return False
        file.descriptor, file.name = descriptor, path
        file.moved_s = time.monotonic()
        return True

    def _found_elsewhere(self, file: Growing) -> bool:
        path = by_inode(os.path.dirname(file.path) or ".", file.key)
        return path is not None and self._open(file, path)


def _pass_by(file: Growing) -> None:
    """What is there already is left out, also the rest of a line that is being written."""
    assert file.descriptor is not None
    size = file.size
    head, last = os.pread(file.descriptor, HEAD_BYTES, 0), os.pread(file.descriptor, 1, max(0, size - 1))
    file.advance(size, seen=size, head=file.head_after(head[:size]), skipping=last not in (b"", b"\n"))
