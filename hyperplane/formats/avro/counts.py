"""Validate the record counts of Avro blocks against the sizes of the blocks.

A block starts with its record count. Polars allocates memory for that many records and fastavro
creates as many objects, so a damaged or malicious file of 100 bytes can demand 2**40 records.
"""

from __future__ import annotations

import zlib
from typing import Any

#: Maximum number of zero-byte records (nulls only) read from one file or byte range.
MAX_EMPTY_RECORDS = 1_000_000
#: Blocks that need less memory than this are not decompressed for the check.
_SMALL_BLOCK = 1 << 20
#: Maximum compression ratio of snappy.
_SNAPPY_RATIO = 64
_DECOMPRESS_STEP = 1 << 20
_MIN_BYTES = {
    **{"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8},
    **{"bytes": 1, "string": 1, "enum": 1, "array": 1, "map": 1},
}
#: Types with names that later fields can refer to.
_NAMED = ("record", "enum", "fixed")


class WrongRecordCount(ValueError):
    """A file declares more values than its bytes can contain, or more than can be verified."""


class RecordCountCheck:
    """Checks the record counts of the blocks of one file.

    Parameters
    ----------
    schema : dict
        The schema of the records, accepted by :func:`hyperplane.formats.avro.schema.parse_fields`.

    Raises
    ------
    WrongRecordCount
        If the schema has arrays of zero-byte items.
    """

    def __init__(self, schema: Any) -> None:
        self._record_bytes = _find_min_bytes(schema, {})
        self._empty = 0

    def check(self, count: int, size: int) -> None:
        """Check the count of a block against its uncompressed size.

        Raises
        ------
        WrongRecordCount
            If the block cannot contain that many records, or there are too many empty ones.
        """
        if count < 0 or (self._record_bytes and count * self._record_bytes > size):
            raise WrongRecordCount(
                f"a block of {size} bytes declares {count} records, more than fit into it"
            )
        if not self._record_bytes:
            self._empty += count
        if self._empty > MAX_EMPTY_RECORDS:
            raise WrongRecordCount(
                f"its blocks declare {self._empty} records without any bytes; "
                f"at most {MAX_EMPTY_RECORDS} are read"
            )

    def check_packed(self, blocks: bytes, codec: str, mark: int) -> None:
        """Check the counts of compressed blocks, as stored in a file.

        Parameters
        ----------
        blocks : bytes
            Blocks; the last one may be incomplete.
        codec : str
            The compression codec. The uncompressed size of blocks is verified for null, deflate
            and snappy; for other codecs it is assumed to suffice.
        mark : int
            Length of the sync marker in bytes.
        """
        position = 0
        while position < len(blocks):
            count, position = _read_long(blocks, position)
            size, position = _read_long(blocks, position)
            if size < 0:
                raise WrongRecordCount(f"a block declares a size of {size} bytes")
            packed = memoryview(blocks)[position : position + size]
            position += size + mark
            needed = count * self._record_bytes
            if needed > max(_SMALL_BLOCK, len(packed)):
                self.check(count, _count_unpacked_bytes(packed, codec, needed))
            else:
                self.check(count, max(len(packed), needed if codec != "null" else 0))


def _find_min_bytes(kind: Any, named: dict[str, int]) -> int:
    """Return the minimum size in bytes of a value of a type."""
    if isinstance(kind, list):
        return 1 + min((_find_min_bytes(branch, named) for branch in kind), default=0)
    if isinstance(kind, str):
        primitive = _MIN_BYTES.get(kind)
        return named.get(kind.rpartition(".")[2], 0) if primitive is None else primitive
    base = kind["type"]
    if base == "record":
        size_bytes = sum(_find_min_bytes(entry["type"], named) for entry in kind["fields"])
    elif base == "fixed":
        size_bytes = int(kind["size"])
    elif base == "array" and not _find_min_bytes(kind["items"], named):
        raise WrongRecordCount(
            "its arrays have items of zero bytes, whose number cannot be verified"
        )
    else:
        if base == "map":
            _find_min_bytes(kind["values"], named)  # registers named types that are defined there
        size_bytes = _find_min_bytes(base, named)
    if base in _NAMED:
        # Namespaces are ignored; of types with equal names the smaller size is used.
        name = kind["name"].rpartition(".")[2]
        named[name] = min(size_bytes, named.get(name, size_bytes))
    return size_bytes


def _count_unpacked_bytes(packed: memoryview, codec: str, enough: int) -> int:
    """Return the uncompressed size of a block, or an upper limit; count only up to ``enough``."""
    if codec == "snappy":
        return len(packed) * _SNAPPY_RATIO
    if codec != "deflate":
        return len(packed) if codec == "null" else enough
    unpacker, size, rest = zlib.decompressobj(-zlib.MAX_WBITS), 0, bytes(packed)
    while size < enough:
        try:
            chunk = unpacker.decompress(rest, _DECOMPRESS_STEP)
        except zlib.error as error:
            raise WrongRecordCount(f"a block is damaged ({error})") from error
        if not chunk:
            break
        size, rest = size + len(chunk), unpacker.unconsumed_tail
    return size


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    """Decode an Avro long; return it and the position after it."""
    number = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
        if shift > 63:
            raise WrongRecordCount(
                "the count of a block is not a 64-bit integer; the file is damaged"
            )
    return 0, position
