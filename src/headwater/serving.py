"""A server over a log, started: what it lets people append to, read, command and send."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from headwater.log import Log, Topic
from headwater.serve.view import View

if TYPE_CHECKING:
    from headwater.capture.intake import Webhooks
    from headwater.decide import Decider
    from headwater.serve.server import Server


class Offers(Protocol):
    """What an `App` declares, as far as others may reach it."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def views(self) -> Mapping[str, View]: ...

    @property
    def deciders(self) -> Mapping[str, Decider]: ...

    @property
    def hooks(self) -> Mapping[str, Webhooks]: ...


def start_server(
    log: Log,
    folder: Path,
    address: str,
    app: Offers | None,
    *,
    topics: Mapping[str, Topic] = MappingProxyType({}),
) -> Server:
    """Bound, or refused, when this returns. `topics` can be appended to besides those of the app; events of deciders
    can be read alone: they are made by commands."""
    from headwater.console import mount_pages
    from headwater.serve.access import Access
    from headwater.serve.http import make_api
    from headwater.serve.server import Server

    access = Access(folder)
    known = {**topics, **(app.topics if app is not None else {})}
    deciders = app.deciders if app is not None else {}
    events = {decider.topic.name for decider in deciders.values()}
    api = make_api(
        {name: topic for name, topic in known.items() if name not in events},
        app.views if app is not None else {},
        log=log,
        deciders=deciders,
        hooks=app.hooks if app is not None else {},
        access=access,
    )
    mount_pages(api)
    server = Server(api, address, access=access)
    server.start()
    return server
