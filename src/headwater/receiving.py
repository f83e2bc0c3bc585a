"""What is sent to an app besides rows: commands, and webhooks. This is the part of `App` that says who sends what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from headwater.capture.intake import Webhooks
from headwater.capture.intake.signatures import TOLERANCE_S
from headwater.capture.intake.taking import REMEMBER
from headwater.deciding import Deciding
from headwater.durations import Duration
from headwater.errors import BadName, TopicNotFound, UsageError
from headwater.log import Topic
from headwater.log.spec import NAME


class Receiving(Deciding):
    """What an app has of it: `app.webhooks(...)`, `app.hooks`, and what `Deciding` has."""

    _hooks: dict[str, Webhooks]

    @property
    def hooks(self) -> Mapping[str, Webhooks]:
        return MappingProxyType(self._hooks)

    def webhooks(
        self,
        name: str,
        *,
        into: str | Topic,
        secrets: Sequence[str],
        tolerance_s: float = TOLERANCE_S,
        remember: Duration = REMEMBER,
    ) -> Webhooks:
        """What a sender posts to `/hooks/NAME`, signed with one of the `secrets` as Standard Webhooks has it, becomes
        records of a topic, each once; `name` is also their `source`. See docs/intake.md."""
        if not NAME.fullmatch(name):
            raise BadName(name=name, kind="webhook")
        if name in self._hooks:
            raise UsageError(what=f"webhooks {name!r} are declared twice", do="Give each sender a name of its own")
        topic = into if isinstance(into, str) else into.name
        if topic not in self._topics:
            raise TopicNotFound(topic=topic, known=self._topics)
        made = self._hooks[name] = Webhooks(
            self._topics[topic],
            source=name,
            secrets=secrets,
            tolerance_s=tolerance_s,
            remember=remember,
            clock=self.clock,
        )
        return made
