"""What was used last, such as mapped files: as much as a process can keep without growing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """At most `most` values of `most_bytes` together; one that is larger than this is kept alone. For any thread."""

    def __init__(self, *, most: int, most_bytes: int = 0) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value: T, size: int = 0) -> None:
        with self._lock:
            self._remove(key)
            self._kept[key] = value, size
            self.bytes += size
            while len(self._kept) > self._most or (self.bytes > self._most_bytes and len(self._kept) > 1):
                self._remove(next(iter(self._kept)))

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.bytes = 0

    def _remove(self, key: Hashable) -> None:
        if key in self._kept:
            self.bytes -= self._kept.pop(key)[1]
