"""A log that is there already: looking at one must not make one."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import BadLogUrl


def folder_of(url: str) -> Path:
    """The folder that a `file:` URL names, whether there is a log in it or not."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme != "file" or not rest:
        raise BadLogUrl(url=url, why="this command is for logs in a folder")
    return Path(rest).absolute()


def existing(url: str) -> Path:
    folder = folder_of(url)
    if not (folder / "catalog.db").is_file():
        raise BadLogUrl(url=url, why="there is no log")
    return folder
