"""A body and its content type become rows: JSON, one JSON record a line, Arrow; checked before it is used."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable
from dataclasses import dataclass
from email.message import Message
from typing import Any

from headwater.capture.intake.arrow import FILE, STREAM, table_in
from headwater.errors import BadRequest, TooLarge
from headwater.records import Rows

BODY_BYTES = 16 * 1024 * 1024
JSON = "application/json"
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
KINDS = f"{JSON}, {LINES[0]}, {STREAM}, {FILE}, or CloudEvents"


async def gathered(pieces: AsyncIterable[bytes], *, limit_bytes: int = BODY_BYTES) -> bytes:
    """A body that comes in pieces, refused as soon as it is too large."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > limit_bytes:
            raise TooLarge(limit_bytes=limit_bytes)
    return bytes(body)


@dataclass(frozen=True)
class MediaType:
    kind: str
    """In lower case, without parameters; empty if there was none."""

    @classmethod
    def parse(cls, content_type: str) -> MediaType:
        kind = content_type.partition(";")[0].strip().lower()
        read = Message()
        read["content-type"] = content_type
        charset = str(read.get_param("charset") or "utf-8").lower()
        if charset not in ("utf-8", "utf8", "us-ascii"):
            raise BadRequest(why=f"the body is in the character set {charset!r}", do="Send UTF-8")
        return cls(kind)

    @property
    def is_json(self) -> bool:
        return self.kind in ("", JSON) or self.kind.endswith("+json")


def rows_in(body: bytes, media: MediaType) -> Rows:
    if media.kind in LINES:
        return _lines(body)
    if media.kind in (STREAM, FILE):
        return table_in(body, media.kind)
    if media.is_json:
        parsed = json_in(body)
        return parsed if isinstance(parsed, list) else [parsed]
    raise BadRequest(why=f"records cannot be sent as {media.kind}", do=f"Send {KINDS}")


def json_in(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(why=f"the body is not JSON: {error}", do="Send a JSON object, or an array of them") from None


def _lines(body: bytes) -> list[Any]:
    rows = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                why = f"line {number} of the body is not JSON: {error}; nothing was appended"
                raise BadRequest(why=why, do="Send one JSON record a line") from None
    return rows
