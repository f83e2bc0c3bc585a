"""Values of one column become an Arrow array; dates that no calendar has are null."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.capture.compiled import NULL, Bytes, Ints, Lengths
from headwater.capture.mysql.images import DIGIT_BYTES, NO_DAY, copy_runs, image_decimals, little

Read = Callable[[bytes], Any]


def integers(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType, *, signed: bool) -> pa.Array:
    return pa.array(little(data, starts, lengths, signed).astype(kind.to_pandas_dtype()), kind, mask=lengths < 0)


def floats(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    bits = little(data, starts, lengths, False)
    values = bits.view(np.float64) if kind == pa.float64() else bits.astype(np.uint32).view(np.float32)
    return pa.array(values, kind, mask=lengths < 0)


def days(found: Ints) -> pa.Array:
    none = found == NO_DAY
    return pa.array(np.where(none, 0, found).astype(np.int32), pa.int32(), mask=none).cast(pa.date32())


def moments(found: Ints, kind: pa.DataType) -> pa.Array:
    none = found == NO_DAY
    return pa.array(np.where(none, 0, found), pa.int64(), mask=none).cast(kind)


def decimals(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    found = image_decimals(data, starts, lengths, kind.precision - kind.scale, kind.scale)
    return pa.Array.from_buffers(kind, len(starts), [_valid(lengths), pa.py_buffer(found)])


def binaries(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType | None = None) -> pa.Array:
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    copy_runs(data, starts, offsets, out)
    buffers = [_valid(lengths), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind or pa.binary(), len(starts), buffers)


def strings(data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    """Of bytes that are UTF-8."""
    found = binaries(data, starts, lengths, pa.string())
    found.validate(full=True)
    return found


def each(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType, read: Read) -> pa.Array:
    """Value by value, for types that are rare."""
    raw = binaries(data, starts, lengths).to_pylist()
    return pa.array([None if value is None else read(value) for value in raw], kind)


def decoded(encoding: str) -> Callable[[bytes], str]:
    def read(raw: bytes) -> str:
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:  # MySQL's latin1 is cp1252 with its five gaps filled
            return "".join(bytes([byte]).decode(encoding, "replace").replace("�", chr(byte)) for byte in raw)

    return read


def decimal_text(precision: int, scale: int) -> Callable[[bytes], str]:
    """A decimal of any size, as the server writes it."""
    whole = precision - scale
    sizes = [whole % 9] * (whole % 9 > 0) + [9] * (whole // 9 + scale // 9) + [scale % 9] * (scale % 9 > 0)

    def read(raw: bytes) -> str:
        negative = not raw[0] & 0x80
        rest = bytes([raw[0] ^ 0x80]) + raw[1:]
        rest = bytes(byte ^ 0xFF for byte in rest) if negative else rest
        number, at = 0, 0
        for digits in sizes:
            width = int(DIGIT_BYTES[digits])
            number, at = number * 10**digits + int.from_bytes(rest[at : at + width], "big"), at + width
        text = str(number).rjust(scale + 1, "0")
        sign = "-" if negative else ""
        return f"{sign}{text[: len(text) - scale]}.{text[len(text) - scale :]}" if scale else sign + text

    return read


def time_text(micros: int, digits: int) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{'-' if micros < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}"[: len(text) + 1 + digits] if digits else text


def set_text(values: Sequence[str]) -> Callable[[bytes], str]:
    def read(raw: bytes) -> str:
        mask = int.from_bytes(raw, "little")
        return ",".join(value for place, value in enumerate(values) if mask >> place & 1)

    return read


def enum_text(values: Sequence[str]) -> Callable[[bytes], str]:
    """0 is the value that was none of them."""

    def read(raw: bytes) -> str:
        number = int.from_bytes(raw, "little")
        return values[number - 1] if number else ""

    return read


def padded(width: int) -> Callable[[bytes], bytes]:
    """Bytes of a fixed width, whose zeros at the end are left out of images."""
    return lambda raw: raw.ljust(width, b"\0")


def uuid_text(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw.ljust(16, b"\0")))


def address_text(width: int) -> Callable[[bytes], str]:
    family = socket.AF_INET if width == 4 else socket.AF_INET6
    return lambda raw: socket.inet_ntop(family, raw.ljust(width, b"\0"))


def json_text(raw: bytes) -> str:
    """MySQL's binary JSON."""
    from pymysqlreplication.json_binary import parse_json

    return json.dumps(_plain(parse_json(raw[0], raw[1:])), ensure_ascii=False, default=str) if raw else "null"


def same_json(raw: bytes) -> str:
    return json.dumps(json.loads(raw), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_plain(name): _plain(each_value) for name, each_value in value.items()}
    if isinstance(value, list):
        return [_plain(each_value) for each_value in value]
    return value


def _valid(lengths: Lengths) -> pa.Buffer:
    return pa.py_buffer(np.packbits(lengths > NULL, bitorder="little"))
