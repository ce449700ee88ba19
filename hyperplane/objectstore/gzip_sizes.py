"""Uncompressed size of gzip files, from their last bytes."""

from __future__ import annotations

import zlib

from hyperplane.objectstore.locations import File

#: Compressed bytes at the beginning of a file from which its compression is estimated.
_PREFIX = 65_536
#: Smallest part of the estimated size that the stored one is believed to be.
_LEAST_PART = 0.6
#: Argument of zlib for data with the header of gzip.
_GZIP = 31


def read_gzip_size(file: File) -> int | None:
    """Return the uncompressed size that a gzip file ends with; None if it cannot be right.

    A file of several members, as ``cat`` and parallel compressors write it, ends with the size of
    the last one, and a file of more than 4 GB with the remainder. Both are less than what the
    compression of the first bytes lets expect.
    """
    if file.compression != "gzip" or file.size < 18:  # a header and a trailer
        return None
    try:
        prefix = file.read_range(0, min(file.size, _PREFIX))
        size = int.from_bytes(file.read_range(file.size - 4, file.size), "little")
        member = zlib.decompressobj(_GZIP)
        expected = len(member.decompress(prefix)) * file.size / len(prefix)
    except (OSError, zlib.error):  # reported where the file is read
        return None
    if member.eof and (member.unused_data or len(prefix) < file.size):
        return None  # the first of several members
    return size if size >= _LEAST_PART * expected else None
