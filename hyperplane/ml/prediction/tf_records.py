"""Files of TFRecord with messages ``tf.train.Example``, read without TensorFlow.

A record is its length (8 bytes), a checksum of the length (4), the message, and a checksum of the
message (4). An ``Example`` maps names to lists of bytes, floats or integers.
"""

from __future__ import annotations

import functools
import gzip
import importlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

from hyperplane.core.optional import is_installed

#: Longest record; a damaged length would otherwise allocate any amount of memory.
_MAX_RECORD = 1 << 31
#: First bytes of a file that is compressed with gzip.
_GZIP = b"\x1f\x8b"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_records(opened: Any) -> Iterator[bytes]:
    """Yield the messages of a file, which may be compressed with gzip, also without the suffix.

    Raises
    ------
    ValueError
        If the file is truncated, or a checksum is wrong.
    """
    checksum, is_first = _get_checksum(), True
    while header := opened.read(12):
        length_bytes, expected = _unpack(header, 8)
        if _mask(checksum(length_bytes)) != expected:
            if is_first and header.startswith(_GZIP):
                opened.seek(0)
                with gzip.open(opened) as unpacked:
                    yield from read_records(unpacked)
                return
            text = "the file is no TFRecord, or is compressed in another way than gzip: "
            raise ValueError(f"{text * is_first}the checksum of a record's length is wrong")
        is_first = False
        (length,) = struct.unpack("<Q", length_bytes)
        if length > _MAX_RECORD:
            raise ValueError(f"a record has {length:,} bytes; at most {_MAX_RECORD:,} are read")
        message, expected = _unpack(opened.read(length + 4), length)
        if _mask(checksum(message)) != expected:
            raise ValueError("the checksum of a record is wrong")
        yield message


def _unpack(data: bytes, length: int) -> tuple[bytes, int]:
    """Return data and the checksum after it."""
    if len(data) < length + 4:
        raise ValueError("the file ends within a record")
    return data[:length], struct.unpack("<I", data[length : length + 4])[0]


def parse_example(message: bytes) -> dict[str, Any]:
    """Return a message as a mapping: names to a value, or to a list unless it has one value.

    Bytes are decoded as UTF-8.

    Raises
    ------
    ValueError
        If the message is not an ``Example``.
    """
    values: dict[str, Any] = {}
    for features in _fields(message, 1):
        for entry in _fields(features, 1):
            names, bodies = list(_fields(entry, 1)), list(_fields(entry, 2))
            if names and bodies:
                found = _parse_feature(bodies[-1])
                values[names[-1].decode()] = found[0] if len(found) == 1 else found
    return values


def _parse_feature(feature: bytes) -> list[Any]:
    for number, wire, body in _parse(feature):
        if wire == _BYTES and number == 1:
            return [item.decode() for item in _fields(body, 1)]
        if wire == _BYTES and number == 2:
            return list(_parse_floats(body))
        if wire == _BYTES and number == 3:
            return list(_parse_integers(body))
    return []


def _parse_floats(body: bytes) -> Iterator[float]:
    for number, wire, value in _parse(body):
        if number != 1 or wire not in (_BYTES, _FIXED32):
            raise ValueError("a list of floats has another field")
        if len(value) % 4:
            raise ValueError(f"a list of floats has {len(value)} bytes, not a multiple of 4")
        yield from struct.unpack(f"<{len(value) // 4}f", value)


def _parse_integers(body: bytes) -> Iterator[int]:
    for number, wire, value in _parse(body):
        if number != 1 or wire not in (_BYTES, _VARINT):
            raise ValueError("a list of integers has another field")
        if wire == _VARINT:
            yield _signed(value)
            continue
        position = 0
        while position < len(value):
            item, position = _read_varint(value, position)
            yield _signed(item)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _fields(message: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the fields of bytes with a number."""
    for number, wire, value in _parse(message):
        if number == wanted and wire == _BYTES:
            yield value


def _parse(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field of a protocol buffer."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _read_varint(message, position)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, position = _read_varint(message, position)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"a message has a field of wire type {wire}")
        if position + size > len(message):
            raise ValueError("a message ends within a field")
        yield number, wire, message[position : position + size]
        position += size


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return an integer of variable length, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise ValueError("a message ends within a number")


def _mask(value: int) -> int:
    """Return the form in which TFRecord stores a checksum."""
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFF_FFFF


def _get_checksum() -> Callable[[bytes], int]:
    """Return CRC-32C: of google-crc32c, part of the extra ``gcs``, or in Python."""
    if is_installed("google_crc32c"):
        value: Callable[[bytes], int] = importlib.import_module("google_crc32c").value
        return value
    return crc32c


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of data.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    table, value = _make_table(), 0xFFFF_FFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFF_FFFF


@functools.cache
def _make_table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        return value

    return tuple(map(entry, range(256)))
