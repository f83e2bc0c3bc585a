"""Webhooks in: signatures as the `standardwebhooks` package makes them, and what is refused."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks import Webhook

import headwater as hw
from headwater.capture.intake import Webhooks
from headwater.errors import BadCapture, BadSignature, TooLarge
from headwater.log import TopicSpec
from headwater.records import schema_of

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 64).decode()
OTHER = "whsec_" + base64.b64encode(b"x" * 32).decode()
COLUMNS = {"id": "string", "source": "string", "type": "string", "time": "timestamp", "order": "int64"}
BODY = json.dumps({"type": "order.paid", "timestamp": "2026-03-04T05:00:00Z", "data": {"order": 7}})


def signed(body: str, *secrets: str, name: str = "msg_1", at: datetime = NOW) -> dict[str, str]:
    """The headers as a sender with these secrets makes them."""
    signatures = " ".join(Webhook(secret).sign(name, at, body) for secret in secrets)
    stamp = str(int(at.timestamp()))
    return {"webhook-id": name, "webhook-timestamp": stamp, "webhook-signature": signatures}


class Receiver:
    def __init__(self, log: hw.Log, *secrets: str, **given: Any) -> None:
        self.topic = hw.Topic(log, log.create(TopicSpec("payments", schema_of(COLUMNS), partitions=1)))
        self.now = NOW
        clock = lambda: int(self.now.timestamp() * 1_000_000)  # noqa: E731
        self.webhooks = Webhooks(self.topic, source="bank", secrets=secrets or [OLD], clock=clock, **given)

    def rows(self) -> list[dict[str, Any]]:
        return [{name: row[name] for name in COLUMNS} for row in self.topic.read().to_pylist()]

    def refused(self, headers: dict[str, str], body: str = BODY) -> str:
        with pytest.raises(BadSignature) as error:
            self.webhooks.take(body.encode(), headers)
        assert self.rows() == []
        return error.value.why


def test_what_the_package_signs_is_taken_and_the_package_takes_what_we_take(log: hw.Log) -> None:
    receiver = Receiver(log)
    body = json.dumps({"type": "order.paid", "data": {"order": 7}, "word": "é"}, ensure_ascii=False)
    headers = signed(body, OLD, at=datetime.now(UTC))
    Webhook(OLD).verify(body, headers)
    receiver.now = datetime.now(UTC)
    receiver.webhooks.take(body.encode(), headers)
    assert [row["order"] for row in receiver.rows()] == [7]


def test_a_body_of_the_recommended_form_fills_the_columns(log: hw.Log) -> None:
    receiver = Receiver(log)
    receiver.webhooks.take(BODY.encode(), {name.title(): value for name, value in signed(BODY, OLD).items()})
    at = datetime(2026, 3, 4, 5, tzinfo=UTC)
    assert receiver.rows() == [{"id": "msg_1", "source": "bank", "type": "order.paid", "time": at, "order": 7}]


def test_any_other_body_is_the_data_and_the_time_is_that_of_its_sending(log: hw.Log) -> None:
    receiver = Receiver(log)
    body = '{"order": 8}'
    receiver.webhooks.take(body.encode(), signed(body, OLD))
    assert receiver.rows() == [{"id": "msg_1", "source": "bank", "type": None, "time": NOW, "order": 8}]


def test_a_webhook_that_is_sent_again_is_appended_once(log: hw.Log) -> None:
    receiver = Receiver(log)
    answers = [receiver.webhooks.take(BODY.encode(), signed(BODY, OLD)) for _ in range(2)]
    later = signed(BODY, OLD, at=datetime.fromtimestamp(NOW.timestamp() + 100, UTC))
    answers.append(receiver.webhooks.take(BODY.encode(), later))
    answers.append(receiver.webhooks.take(BODY.encode(), signed(BODY, OLD, name="msg_2")))
    assert [each.repeated for each in answers] == [False, True, True, False]
    assert len(receiver.rows()) == 2


@pytest.mark.parametrize(
    ("known", "signs"),
    [((NEW, OLD), (OLD,)), ((NEW, OLD), (NEW,)), ((NEW,), (OTHER, NEW)), ((OLD.removeprefix("whsec_"),), (OLD,))],
)
def test_secrets_are_changed_on_either_side_while_both_are_known(
    log: hw.Log, known: tuple[str, ...], signs: tuple[str, ...]
) -> None:
    receiver = Receiver(log, *known)
    receiver.webhooks.take(BODY.encode(), signed(BODY, *signs))
    assert len(receiver.rows()) == 1


def test_ed25519_signatures_are_checked_with_the_public_key(log: hw.Log) -> None:
    private, strange = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = "whpk_" + base64.b64encode(private.public_key().public_bytes_raw()).decode()
    receiver = Receiver(log, public, OLD)
    headers = signed(BODY, OLD)

    def signature(key: Ed25519PrivateKey, version: str = "v1a") -> str:
        content = f"msg_1.{headers['webhook-timestamp']}.{BODY}".encode()
        return f"{version},{base64.b64encode(key.sign(content)).decode()}"

    for wrong in (signature(strange), signature(private, "v1"), "v1a,", "v1a,AAAA"):
        assert "none of its signatures" in receiver.refused({**headers, "webhook-signature": wrong})
    both = f"{signature(strange)} {signature(private)}"
    receiver.webhooks.take(BODY.encode(), {**headers, "webhook-signature": both})
    assert len(receiver.rows()) == 1


def test_what_is_not_signed_as_it_should_be_is_refused_and_said(log: hw.Log) -> None:
    receiver = Receiver(log, NEW, OLD)
    headers = signed(BODY, OLD)
    for name in headers:
        assert receiver.refused({**headers, name: ""}) == f"it has no header {name}"
    for changed in ({"webhook-id": "msg_2"}, {"webhook-timestamp": "1772600768"}, {"webhook-signature": "v1,%% v1 x"}):
        assert "none of its signatures" in receiver.refused({**headers, **changed})
    assert "none of its signatures" in receiver.refused(headers, BODY + " ")
    assert "none of its signatures" in receiver.refused(signed(BODY, OTHER))
    assert "seconds since 1970" in receiver.refused({**headers, "webhook-timestamp": "²"})
    v2 = headers["webhook-signature"].replace("v1,", "v2,")
    assert "none of its signatures" in receiver.refused({**headers, "webhook-signature": v2})


@pytest.mark.parametrize(("seconds", "told"), [(301, "301 s before now"), (-301, "301 s after now")])
def test_an_old_or_early_message_is_refused_though_it_is_signed(log: hw.Log, seconds: int, told: str) -> None:
    receiver = Receiver(log)
    headers = signed(BODY, OLD)
    receiver.now = datetime.fromtimestamp(NOW.timestamp() + seconds, UTC)
    assert told in receiver.refused(headers)
    receiver.now = datetime.fromtimestamp(NOW.timestamp() + seconds * 0.99, UTC)
    receiver.webhooks.take(BODY.encode(), headers)


def test_the_secrets_are_in_no_message_and_no_representation(log: hw.Log) -> None:
    receiver = Receiver(log, OLD)
    told = receiver.refused(signed(BODY, OTHER)) + repr(vars(receiver.webhooks))
    assert base64.b64encode(b"o" * 24).decode() not in told
    assert "oooo" not in told


@pytest.mark.parametrize("wrong", ["", "whsec_", "whsec_AAAA", "whsec_%%%%", "whpk_AAAA", "whsk_" + "A" * 88])
def test_secrets_that_are_none_are_refused_when_they_are_declared(log: hw.Log, wrong: str) -> None:
    with pytest.raises(BadCapture):
        Receiver(log, wrong)


def test_a_body_too_large_is_refused_before_it_is_hashed(log: hw.Log) -> None:
    receiver = Receiver(log, OLD, limit_bytes=10)
    with pytest.raises(TooLarge):
        receiver.webhooks.take(b"x" * 11, {})


def test_a_list_of_secrets_is_wanted(log: hw.Log) -> None:
    topic = Receiver(log).topic
    for wrong in (OLD, []):
        with pytest.raises(BadCapture, match="without a list of secrets"):
            Webhooks(topic, source="bank", secrets=wrong)
