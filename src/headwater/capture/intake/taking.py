"""What is called for each body that comes in. A body is appended whole or not at all; each error says why not.

When consumers are slower than what comes in, the topic's own bound says what happens (`Settings(most_rows=,
when_full=)`): without one the log is the buffer; `block` makes the sender wait and then tells it `Full` (HTTP 503);
`drop_oldest` and `drop_newest` drop, and `headwater topic describe` shows how many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from headwater.capture.intake.bodies import BODY_BYTES, MediaType, json_in, rows_in
from headwater.capture.intake.cloudevents import events_in, is_cloudevents
from headwater.capture.intake.events import Event
from headwater.capture.intake.once import Once
from headwater.capture.intake.signatures import TOLERANCE_S, Secret, verified
from headwater.clock import Clock, system_clock
from headwater.durations import Duration
from headwater.errors import BadCapture, BadRequest, TooLarge
from headwater.log.protocol import Appended, Producer
from headwater.log.topic import Topic

REMEMBER = "30 days"


class Intake:
    """Bodies become records of one topic. May be used by several threads and, of one topic, by several processes.

    An event of CloudEvents is appended once: its source and id are remembered, for `remember` at least.
    """

    def __init__(
        self,
        topic: Topic,
        *,
        limit_bytes: int = BODY_BYTES,
        remember: Duration = REMEMBER,
        clock: Clock = system_clock,
    ) -> None:
        self.topic = topic
        self._limit_bytes = limit_bytes
        self._once = Once(topic, remember=remember, clock=clock)

    def take(
        self,
        body: bytes,
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> Appended:
        """`headers` are those of the request, whose `ce-` ones may make it an event. The answer has the position after
        it, and says if it was `repeated`. With a producer and a sequence, the same body sent again is one append."""
        if len(body) > self._limit_bytes:
            raise TooLarge(limit_bytes=self._limit_bytes)
        media, named = MediaType.parse(content_type), _lower(headers)
        if not is_cloudevents(media, named):
            return self.topic.append_parts(rows_in(body, media), producer=producer, sequence=sequence)
        if producer is not None:
            raise BadRequest(why="an event has its own id", do="Leave out producer and sequence: repeating it is safe")
        return self._once.append(events_in(body, media, {"content-type": content_type, **named}))


class Webhooks:
    """Signed webhooks of one sender become records of one topic, each `webhook-id` once.

    A body of the recommended form, `{"type", "timestamp", "data"}`, is an event of that type and time with that data;
    any other is an event whose data it is. `source` is what the sender is called here. Several `secrets` may be known.
    """

    def __init__(
        self,
        topic: Topic,
        *,
        source: str,
        secrets: Sequence[str],
        limit_bytes: int = BODY_BYTES,
        tolerance_s: float = TOLERANCE_S,
        remember: Duration = REMEMBER,
        clock: Clock = system_clock,
    ) -> None:
        if isinstance(secrets, str) or not secrets:
            raise BadCapture(
                what="webhooks without a list of secrets", do="Say secrets=['whsec_...'], the new one first"
            )
        self.topic = topic
        self.source = source
        self._secrets = [Secret.parse(each) for each in secrets]
        self._limit_bytes = limit_bytes
        self._tolerance_s = tolerance_s
        self._clock = clock
        self._once = Once(topic, remember=remember, clock=clock)

    def take(self, body: bytes, headers: Mapping[str, str]) -> Appended:
        """`BadSignature` if it is not from who it should be: nothing of the body was looked at then."""
        if len(body) > self._limit_bytes:
            raise TooLarge(limit_bytes=self._limit_bytes)
        named = _lower(headers)
        signed = verified(named, body, self._secrets, clock=self._clock, tolerance_s=self._tolerance_s)
        media = MediaType.parse(named.get("content-type", ""))
        data = json_in(body) if media.is_json else body
        attributes = {
            "id": signed.id,
            "source": self.source,
            "time": datetime.fromtimestamp(signed.at_s, UTC).isoformat(),
        }
        if isinstance(data, dict) and isinstance(data.get("type"), str) and "data" in data:
            attributes["type"] = data["type"]
            if isinstance(data.get("timestamp"), str):
                attributes["time"] = data["timestamp"]
            data = data["data"]
        return self._once.append([Event(self.source, signed.id, attributes, data)])


def has_events(content_type: str, headers: Mapping[str, str]) -> bool:
    """Whether a request carries events, which have ids of their own, and not plain records."""
    return is_cloudevents(MediaType.parse(content_type), _lower(headers))


def _lower(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}
