"""Which Arrow type a column of MySQL or MariaDB becomes, and what reads its values: one table.

A column is read in two ways, which must agree: as text, in a snapshot, and as it stands in row images of the binlog.
What is not in the table is refused: row images say nothing of their own form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.capture.compiled import Bytes, Ints, Lengths
from headwater.capture.mysql import images, values
from headwater.typenames import TIMESTAMP

INTEGERS: Mapping[str, tuple[pa.DataType, pa.DataType]] = {
    "tinyint": (pa.int8(), pa.uint8()),
    "smallint": (pa.int16(), pa.uint16()),
    "mediumint": (pa.int32(), pa.uint32()),
    "int": (pa.int32(), pa.uint32()),
    "bigint": (pa.int64(), pa.uint64()),
}
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
BLOBS = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
SHAPES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
)
PLAIN: Mapping[str, pa.DataType] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": TIMESTAMP,
    "timestamp": TIMESTAMP,
    "year": pa.int16(),
    **dict.fromkeys(("binary", *BLOBS, *SHAPES), pa.binary()),
}
"""All others are captured as the text that the server writes."""
LARGEST_DECIMAL = 38


@dataclass(frozen=True)
class Column:
    """A column as it is captured. `size` and `scale` are what stands in brackets behind the type."""

    name: str
    base: str
    unsigned: bool = False
    size: int = 0
    scale: int = 0
    members: tuple[str, ...] = ()
    """Of an enum or a set."""
    encoding: str = "utf8"
    """Of text in row images; results are in UTF-8 always."""
    key: bool = False

    @property
    def captured(self) -> bool:
        return self.base in IMAGES and self.encoding != ""

    @property
    def kind(self) -> pa.DataType:
        if self.base in INTEGERS:
            return INTEGERS[self.base][self.unsigned]
        if self.base == "decimal" and self.size <= LARGEST_DECIMAL and not self.key:
            return pa.decimal128(self.size, self.scale)
        if self.base == "bit":
            return pa.bool_() if self.size == 1 else pa.binary()
        return PLAIN.get(self.base, pa.string())

    def expression(self, quoted: str) -> str:
        """What to select: a float would be written with six digits only."""
        return f"{quoted} + 0e0" if self.base == "float" else quoted

    def read_text(self, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
        """From a result."""
        read = RESULTS.get(self.base)
        if read is not None:
            return read(self, data, starts, lengths)
        text = values.strings(data, starts, lengths)
        return text.cast(pa.float64()).cast(self.kind) if self.base == "float" else text.cast(self.kind)

    def read_image(self, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
        """From row images."""
        return IMAGES[self.base](self, data, starts, lengths)


Reader = Callable[[Column, Bytes, Ints, Lengths], pa.Array]


def _integers(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    return values.integers(data, starts, lengths, column.kind, signed=not column.unsigned)


def _floats(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    return values.floats(data, starts, lengths, column.kind)


def _decimals(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    if pa.types.is_decimal(column.kind):
        return values.decimals(data, starts, lengths, column.kind)
    return values.each(data, starts, lengths, pa.string(), values.decimal_text(column.size, column.scale))


def _texts(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    if column.encoding == "utf8":
        return values.strings(data, starts, lengths)
    return values.each(data, starts, lengths, pa.string(), values.decoded(column.encoding))


def _binaries(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    return values.binaries(data, starts, lengths)


def _bits(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    if column.kind == pa.binary():
        return values.binaries(data, starts, lengths)
    return values.each(data, starts, lengths, pa.bool_(), lambda raw: raw != b"\0")


def _times(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    told = zip(images.image_times(data, starts, lengths).tolist(), (lengths < 0).tolist(), strict=True)
    return pa.array([None if null else values.time_text(micros, column.size) for micros, null in told], pa.string())


def _days(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    return values.days(images.image_days(data, starts, lengths))


def _datetimes(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    return values.moments(images.image_datetimes(data, starts, lengths), TIMESTAMP)


def _timestamps(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    return values.moments(images.image_timestamps(data, starts, lengths), TIMESTAMP)


def _text_days(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    return values.days(images.text_moments(data, starts, lengths, True))


def _text_moments(column: Column, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    return values.moments(images.text_moments(data, starts, lengths, False), TIMESTAMP)


def _each(read: Callable[[Column], values.Read]) -> Reader:
    """Value by value, for types that are rare."""
    return lambda column, data, starts, lengths: values.each(data, starts, lengths, column.kind, read(column))


IMAGES: Mapping[str, Reader] = {
    **dict.fromkeys(INTEGERS, _integers),
    **dict.fromkeys(("float", "double"), _floats),
    **dict.fromkeys(TEXTS, _texts),
    **dict.fromkeys((*BLOBS, *SHAPES), _binaries),
    "decimal": _decimals,
    "bit": _bits,
    "time": _times,
    "date": _days,
    "datetime": _datetimes,
    "timestamp": _timestamps,
    "binary": _each(lambda column: values.padded(column.size)),
    "enum": _each(lambda column: values.enum_text(column.members)),
    "set": _each(lambda column: values.set_text(column.members)),
    "year": _each(lambda column: lambda raw: 1900 + raw[0] if raw[0] else 0),
    "uuid": _each(lambda column: values.uuid_text),
    "inet6": _each(lambda column: values.address_text(16)),
    "inet4": _each(lambda column: values.address_text(4)),
    "json": _each(lambda column: values.json_text),
}
RESULTS: Mapping[str, Reader] = {
    **dict.fromkeys(("binary", *BLOBS, *SHAPES), _binaries),
    "bit": _bits,
    "date": _text_days,
    "datetime": _text_moments,
    "timestamp": _text_moments,
    "json": _each(lambda column: values.same_json),
}
"""Of all others the text is cast."""


ENCODINGS: Mapping[str, str] = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8", "ascii"), "utf8"),
    **{name: name for name in ("big5", "cp850", "cp852", "cp866", "cp932", "cp1250", "cp1251", "cp1256", "cp1257")},
    **{name: name for name in ("gb2312", "gb18030", "gbk")},
    **{"latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13"},
    **{"greek": "iso8859_7", "hebrew": "iso8859_8", "koi8r": "koi8_r", "koi8u": "koi8_u", "tis620": "tis_620"},
    **{"ucs2": "utf_16_be", "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be"},
    **{"ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr", "sjis": "shift_jis", "macroman": "mac_roman"},
}
"""What Python calls the server's character sets; columns in others are refused."""


def described(name: str, data_type: str, column_type: str, charset: str | None, *, key: bool) -> Column:
    """As `information_schema.columns` has it."""
    inside = re.search(r"^\w+\(([\d, ]+)\)", column_type)
    numbers = [int(each) for each in inside[1].split(",")] if inside else []
    size, scale = (*numbers, 0, 0)[:2]
    base = data_type.lower()
    if base in INTEGERS or base in TEXTS:
        size = scale = 0  # of an integer the width of its display; of a text how long it may be
    members = ()
    if base in ("enum", "set"):
        members = tuple(each.replace("''", "'") for each in re.findall(r"'((?:[^']|'')*)'", column_type))
    encoding = ENCODINGS.get(charset or "utf8", "")
    return Column(name, base, "unsigned" in column_type.lower(), size, scale, members, encoding, key)
