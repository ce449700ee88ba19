"""Counts of records in Avro files, compared with the bytes that are there.

A block begins with the number of its records, for which Polars reserves memory at once and
fastavro makes objects: a damaged or malicious file of 100 bytes may ask for 2**40 records.
"""

from __future__ import annotations

import zlib
from typing import Any

#: Records without bytes, as of null values only, that are read from one file or part of it.
MAX_EMPTY_RECORDS = 1_000_000
#: Bytes that are no question of memory, so that packed blocks of fewer are not measured.
_SMALL_BLOCK = 1 << 20
#: The most bytes that snappy makes of one.
_SNAPPY_RATIO = 64
_DECOMPRESS_STEP = 1 << 20
_MIN_BYTES = {
    **{"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8},
    **{"bytes": 1, "string": 1, "enum": 1, "array": 1, "map": 1},
}
#: Types that have names, by which later fields may refer to them.
_NAMED = ("record", "enum", "fixed")


class WrongRecordCount(ValueError):
    """A file says that it holds more values than its bytes can, or than may be compared."""


class RecordCountCheck:
    """Compares the counts of the blocks of a file with their bytes.

    Parameters
    ----------
    schema : dict
        Of the records, which :func:`~.avro_schema.fields` has taken.

    Raises
    ------
    WrongRecordCount
        When the schema has arrays whose items take no bytes.
    """

    def __init__(self, schema: Any) -> None:
        self._record_bytes = _min_bytes(schema, {})
        self._empty = 0

    def check(self, count: int, size: int) -> None:
        """Compare the count of a block with its bytes, unpacked.

        Raises
        ------
        WrongRecordCount
            When it cannot hold so many records, or the file has too many without bytes.
        """
        if count < 0 or (self._record_bytes and count * self._record_bytes > size):
            raise WrongRecordCount(f"a block of {size} bytes says that it holds {count} records")
        if not self._record_bytes:
            self._empty += count
        if self._empty > MAX_EMPTY_RECORDS:
            said = (
                f"{self._empty} records without any bytes, and at most {MAX_EMPTY_RECORDS} are read"
            )
            raise WrongRecordCount(f"its blocks say that they hold {said}")

    def check_packed(self, blocks: bytes, codec: str, mark: int) -> None:
        """Compare the counts of blocks with their bytes as they are in a file.

        Parameters
        ----------
        blocks : bytes
            Whole blocks, perhaps but for the last one.
        codec : str
            How they are packed: null, deflate or snappy; of others the reader finds the end.
        mark : int
            Bytes between two blocks.
        """
        position = 0
        while position < len(blocks):
            count, position = _read_long(blocks, position)
            size, position = _read_long(blocks, position)
            if size < 0:
                raise WrongRecordCount(f"a block says that it has {size} bytes")
            packed = memoryview(blocks)[position : position + size]
            position += size + mark
            needed = count * self._record_bytes
            if needed > max(_SMALL_BLOCK, len(packed)):
                self.check(count, _unpacked_size(packed, codec, needed))
            else:
                self.check(count, max(len(packed), needed if codec != "null" else 0))


def _min_bytes(kind: Any, named: dict[str, int]) -> int:
    """The fewest bytes that a value of a type can have."""
    if isinstance(kind, list):
        return 1 + min((_min_bytes(one, named) for one in kind), default=0)
    if isinstance(kind, str):
        found = _MIN_BYTES.get(kind)
        return named.get(kind.rpartition(".")[2], 0) if found is None else found
    base = kind["type"]
    if base == "record":
        made = sum(_min_bytes(entry["type"], named) for entry in kind["fields"])
    elif base == "fixed":
        made = int(kind["size"])
    elif base == "array" and not _min_bytes(kind["items"], named):
        raise WrongRecordCount(
            "its arrays have items without bytes, so that nothing bounds their number"
        )
    else:
        if base == "map":
            _min_bytes(kind["values"], named)  # notes the types that are defined there
        made = _min_bytes(base, named)
    if base in _NAMED:
        # Of two types that have the same name in several namespaces the smaller one counts.
        name = kind["name"].rpartition(".")[2]
        named[name] = min(made, named.get(name, made))
    return made


def _unpacked_size(packed: memoryview, codec: str, enough: int) -> int:
    """The bytes of a block unpacked; counted no further than to what is enough."""
    if codec == "snappy":
        return len(packed) * _SNAPPY_RATIO
    if codec != "deflate":
        return len(packed) if codec == "null" else enough
    unpacker, size, rest = zlib.decompressobj(-zlib.MAX_WBITS), 0, bytes(packed)
    while size < enough:
        try:
            made = unpacker.decompress(rest, _DECOMPRESS_STEP)
        except zlib.error as error:
            raise WrongRecordCount(f"a block is damaged ({error})") from error
        if not made:
            break
        size, rest = size + len(made), unpacker.unconsumed_tail
    return size


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    """A whole number of Avro, and the position behind it."""
    number = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
        if shift > 63:
            raise WrongRecordCount("the count of a block is no whole number of 64 bits")
    return 0, position
