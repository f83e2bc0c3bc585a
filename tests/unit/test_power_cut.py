"""The model of a disk after a power cut: what it keeps, what it may keep, what it never keeps."""

from __future__ import annotations

import random
from pathlib import Path

from headwater.testing.power_cut import PAGE, RecordedDisk
from headwater.testing.recording_disk import Act, Kind


def created(path: str) -> Act:
    return Act(Kind.CREATED, f"/disk/{path}")


def written(path: str, data: bytes, at: int = 0) -> Act:
    return Act(Kind.WRITTEN, f"/disk/{path}", at=at, data=data)


def synced(path: str) -> Act:
    return Act(Kind.SYNCED, f"/disk/{path}".rstrip("/"))


def left(target: Path, *acts: Act, luck: int | None = None) -> dict[str, bytes]:
    disk = RecordedDisk("/disk")
    for act in acts:
        disk.apply(act)
    target.mkdir(exist_ok=True)
    disk.lay_out(target, chance=None if luck is None else random.Random(luck))
    found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    for path in sorted(target.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    return found


def test_a_file_is_there_when_both_its_bytes_and_its_name_were_synced(tmp_path: Path) -> None:
    start = (created("a"), written("a", b"one"))
    assert left(tmp_path, *start) == {}
    assert left(tmp_path, *start, synced("a")) == {}
    assert left(tmp_path, *start, synced("")) == {"a": b""}
    assert left(tmp_path, *start, synced("a"), synced("")) == {"a": b"one"}
    assert left(tmp_path, *start, synced("a"), synced(""), written("a", b"two")) == {"a": b"one"}


def test_a_name_in_a_new_folder_needs_the_folder_s_name_too(tmp_path: Path) -> None:
    acts = (Act(Kind.FOLDER_MADE, "/disk/f"), created("f/a"), written("f/a", b"1"), synced("f/a"), synced("f"))
    assert left(tmp_path, *acts) == {}
    assert left(tmp_path, *acts, synced("")) == {"f/a": b"1"}


def test_removing_and_renaming_need_a_sync_of_the_folder(tmp_path: Path) -> None:
    acts = (created("a"), written("a", b"1"), synced("a"), synced(""))
    assert left(tmp_path, *acts, Act(Kind.UNLINKED, "/disk/a")) == {"a": b"1"}
    assert left(tmp_path, *acts, Act(Kind.UNLINKED, "/disk/a"), synced("")) == {}
    renamed = Act(Kind.RENAMED, "/disk/a", "/disk/b")
    assert left(tmp_path, *acts, renamed) == {"a": b"1"}
    assert left(tmp_path, *acts, renamed, synced("")) == {"b": b"1"}


def test_shared_memory_of_sqlite_is_never_there(tmp_path: Path) -> None:
    assert left(tmp_path, created("c.db-shm"), synced("c.db-shm"), synced("")) == {}


def test_with_luck_any_pages_are_there_and_each_of_them_whole(tmp_path: Path) -> None:
    acts = [created("a"), written("a", b"-" * 2 * PAGE), synced("a"), synced("")]
    acts += [written("a", b"1" * 2 * PAGE), written("a", b"2" * PAGE, at=PAGE)]
    seen = {tuple(left(tmp_path, *acts, luck=luck)["a"][:: PAGE // 2]) for luck in range(60)}
    pages = {(bytes(page[:2]), bytes(page[2:])) for page in seen}
    assert pages == {(one, two) for one in (b"--", b"11") for two in (b"--", b"11", b"22")}


def test_with_luck_a_truncation_is_there_or_not_but_never_what_it_cut_off_after_it(tmp_path: Path) -> None:
    acts = [created("a"), written("a", b"old" * PAGE), synced("a"), synced("")]
    acts += [Act(Kind.TRUNCATED, "/disk/a", at=0), written("a", b"new")]
    seen = {left(tmp_path, *acts, luck=luck)["a"] for luck in range(60)}
    assert {b"", b"new", b"old" * PAGE} <= seen
    assert {len(content) for content in seen} == {0, 3, 3 * PAGE}
    assert b"old" not in seen
