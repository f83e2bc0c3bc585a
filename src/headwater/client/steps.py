"""What a client does, as steps: a generator that yields a call, gets its answer, and returns a result.

It does no input or output itself, so the same steps serve plain code and coroutines. Calls that can be repeated without
harm are repeated a few times when the connection breaks or the server is busy.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import ipc

from headwater import errors
from headwater.errors import HeadwaterError, ServerFailed, Unreachable

T = TypeVar("T")
ARROW = "application/vnd.apache.arrow.stream"
PATIENCE_S = 30.0
RESTS_S = (0.1, 0.5, 2.0)
"""How long to wait before each further try."""


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = field(default=None, repr=False)
    wait_s: float = 0.0
    """How long the server may take on top, because it is asked to wait."""
    again: bool = True
    """Whether doing it twice is as good as once."""

    def request(self) -> dict[str, Any]:
        """As httpx takes it."""
        headers = dict(self.headers)
        return {"method": self.method, "url": self.path, "params": self.params, "headers": headers}


@dataclass(frozen=True)
class Rest:
    seconds: float


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """With names in lower case."""
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)

    def table(self) -> pa.Table:
        return ipc.open_stream(self.content).read_all()


@dataclass(frozen=True)
class Lost:
    """No answer came."""

    url: str
    why: str


def connection_settings(url: str, token: str | None, timeout_s: float, verify: ssl.SSLContext | None) -> dict[str, Any]:
    """As httpx takes them."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return {"base_url": url, "headers": headers, "timeout": timeout_s, "verify": verify if verify is not None else True}


def words_of(error: Exception) -> str:
    """Why there was no answer."""
    return str(error) or type(error).__name__


Steps = Generator[Call | Rest, Answer | Lost | None, T]


def asked(call: Call) -> Steps[Answer]:
    """The answer to a call, tried again where that is safe; or the error that the server raised, raised here."""
    for rest_s in (*RESTS_S, None):
        answer = yield call
        if isinstance(answer, Answer):
            if answer.status < 400:
                return answer
            if rest_s is None or not call.again or answer.status not in (429, 503):
                raise error_of(answer)
        elif rest_s is None or not call.again:
            assert isinstance(answer, Lost)
            raise Unreachable(url=answer.url, why=answer.why)
        yield Rest(rest_s)
    raise AssertionError("the last try answers or raises")


def sent(method: str, path: str, body: Mapping[str, Any], **more: Any) -> Steps[Answer]:
    """A call with a JSON body."""
    headers = {"Content-Type": "application/json", **more.pop("headers", {})}
    content = json.dumps(body, default=str).encode()
    return (yield from asked(Call(method, path, headers=headers, content=content, **more)))


def error_of(answer: Answer) -> HeadwaterError:
    """The error of the same class, with the same words and fields; `ServerFailed` if it says none that we know."""
    try:
        told = answer.json()
        title, detail, fields = told["title"], told["detail"], told.get("fields", {})
    except (ValueError, KeyError, TypeError):
        return ServerFailed(status=answer.status, detail=answer.content[:200].decode(errors="replace"))
    kind = getattr(errors, str(title), None)
    if not isinstance(kind, type) or not issubclass(kind, HeadwaterError) or "what" not in fields:
        return ServerFailed(status=answer.status, detail=detail)
    error = kind.__new__(kind)
    error.args = (detail,)
    error.__dict__.update(fields)
    return error
