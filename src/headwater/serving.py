"""A server over a log, started: what it lets people append to, read and command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log import Log, Topic
from headwater.serve.view import View

if TYPE_CHECKING:
    from headwater.decide import Decider
    from headwater.serve.server import Server


def start_server(
    log: Log,
    folder: Path,
    address: str,
    *,
    topics: Mapping[str, Topic],
    views: Mapping[str, View],
    deciders: Mapping[str, Decider],
) -> Server:
    """Bound, or refused, when this returns. Events of deciders can be read; they are made by commands alone."""
    from headwater.console import mount_pages
    from headwater.serve.access import Access
    from headwater.serve.http import make_api
    from headwater.serve.server import Server

    access = Access(folder)
    events = {decider.topic.name for decider in deciders.values()}
    plain = {name: topic for name, topic in topics.items() if name not in events}
    api = make_api(plain, views, log=log, deciders=deciders, access=access)
    mount_pages(api)
    server = Server(api, address, access=access)
    server.start()
    return server
