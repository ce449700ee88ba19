"""Frequent keys of the two sides of an exchange, whose rows are spread over several receivers.

All rows with one key in one task would make that task as long as the key is frequent. Once both
sides are split by the hashes of their keys, the rows of a frequent key of one side are divided
among several receivers, and the rows of the other side with the same hash are copied to all of
these. Each of the divided rows is in one task only, so that the joined rows are the same.

A task may run again, when a worker was lost, with the rows of its partition in another order. All
that is chosen here therefore depends on the values of rows, not on their positions: otherwise the
pieces of the second run would not fit those of the first that other workers have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

#: Minimum rows of a key that is spread.
_MIN_ROWS = 1_000
#: How many times as many rows as the average of a receiver a frequent key has.
_MIN_SHARE = 1.5
#: The same for the rows of one partition: keys with fewer rows there are not counted.
_MIN_SHARE_OF_PARTITION = 0.5
#: Receivers of a key for each receiver that its rows would fill. With two, none of them has much
#: more rows than others, which have the rows of other keys.
_RECEIVERS_PER_SHARE = 2
#: Minimum number of ranges of hashes whose rows are counted first, and the number per receiver.
#: Only hashes in ranges with as many rows as a frequent key are counted one by one: counting all
#: hashes of distinct keys took longer than splitting the rows.
_RANGES, _RANGES_PER_RECEIVER = 1 << 12, 8
#: Columns of the counts of frequent keys.
_COUNTS = {"hash": pl.UInt64, "rows": pl.Int64}


@dataclass(frozen=True, eq=False)
class KeyCounts:
    """Number of rows of a partition, and of its frequent keys, by hash."""

    rows: int
    counts: pl.DataFrame


def count_keys(hashes: pl.Series, into: int) -> KeyCounts:
    """Count the rows of keys that may be frequent."""
    rows = len(hashes)
    limit = min(_MIN_SHARE_OF_PARTITION, _MIN_SHARE) * rows / into
    bits = max(_RANGES, _RANGES_PER_RECEIVER * into).bit_length()
    ranges = (hashes.to_numpy() >> np.uint64(64 - bits)).view(np.int64)
    is_large = np.bincount(ranges, minlength=1 << bits) > limit
    if not is_large.any():
        return KeyCounts(rows, pl.DataFrame(schema=_COUNTS))
    candidates = pl.LazyFrame({"hash": hashes.filter(pl.Series(is_large[ranges]))})
    counts = candidates.group_by("hash").agg(pl.len().cast(pl.Int64).alias("rows"))
    return KeyCounts(rows, counts.filter(pl.col("rows") > limit).collect())


def choose_spread_keys(
    left: Sequence[KeyCounts], right: Sequence[KeyCounts], into: int
) -> pl.DataFrame:
    """Return the hashes of frequent keys, the receivers of each, and the side that is spread.

    If a key is frequent on both sides, the side with more rows of it is spread.
    """
    sides = pl.concat(
        [
            _find_frequent(left, into).with_columns(is_left=True),
            _find_frequent(right, into).with_columns(is_left=False),
        ]
    )
    most = sides.sort("rows", "is_left", "hash", descending=True)
    return most.unique("hash", keep="first", maintain_order=True).drop("rows")


def _find_frequent(partitions: Sequence[KeyCounts], into: int) -> pl.DataFrame:
    """Return the hash, rows and number of receivers of the frequent keys of a side."""
    counts = pl.concat([pl.DataFrame(schema=_COUNTS), *(each.counts for each in partitions)])
    average = max(1.0, sum(each.rows for each in partitions) / into)
    width = (pl.col("rows") / average).ceil() * _RECEIVERS_PER_SHARE
    return (
        counts.group_by("hash")
        .agg(pl.col("rows").sum())
        .filter(pl.col("rows") > max(_MIN_ROWS, _MIN_SHARE * average))
        .with_columns(width.clip(1, into).cast(pl.Int64).alias("width"))
    )


def spread_rows(
    rows: pl.DataFrame,
    hashes: pl.Series,
    spread: pl.DataFrame,
    into: int,
    number: int,
    keys: Sequence[str] | None,
) -> pl.Series:
    """Return the receiver of each row of frequent keys of one of several partitions.

    Parameters
    ----------
    rows : polars.DataFrame
        The rows.
    hashes : polars.Series
        Hashes of their keys, all of which are in ``spread``.
    spread : polars.DataFrame
        Hashes and numbers of receivers.
    into : int
        Number of all receivers.
    number : int
        Number of the partition, so that few rows of many partitions have different receivers.
    keys : sequence of str, optional
        Columns of the keys. Of each key one row goes where its hash sends it, so that a row of the
        other side finds out there whether its key has any match.
    """
    values = rows.hash_rows(seed=0)  # equal rows may change places
    table = pl.DataFrame({"hash": hashes, "values": values})
    table = table.join(spread, on="hash", maintain_order="left")
    row_of_key = pl.col("values").rank("ordinal").over("hash").cast(pl.Int64)
    offset = (row_of_key + number) % pl.col("width")
    home = (pl.col("hash") % into).cast(pl.Int64)
    receivers = table.select(((home + offset) % into).alias("receiver")).to_series()
    if keys is None:
        return receivers
    result = receivers.to_numpy().copy()
    named = pl.DataFrame([rows.get_column(key).alias(f"key {n}") for n, key in enumerate(keys)])
    sorted_rows = named.with_columns(values.alias("values")).with_row_index("row").sort("values")
    first = sorted_rows.unique(named.columns, keep="first", maintain_order=True)
    kept = first.get_column("row").to_numpy()
    result[kept] = (hashes % into).to_numpy()[kept]
    return pl.Series(result, dtype=pl.Int64)


def copy_rows(hashes: pl.Series, spread: pl.DataFrame, into: int) -> tuple[pl.Series, pl.Series]:
    """Return the positions of rows whose key is spread on the other side, for each receiver."""
    targets = spread.select("hash", pl.int_ranges(0, "width").alias("offset")).explode("offset")
    rows = pl.DataFrame({"hash": hashes}).with_row_index("row").join(targets, on="hash")
    receiver = ((pl.col("hash") % into).cast(pl.Int64) + pl.col("offset")) % into
    copies = rows.select("row", receiver.alias("receiver"))
    return copies.get_column("row"), copies.get_column("receiver")


def find_copies(hashes: pl.Series, spread: pl.DataFrame, into: int, receiver: int) -> pl.Series:
    """Return whether rows that a receiver got are copies, which have an original elsewhere.

    ``spread`` has the hashes of the keys that are spread on the other side.
    """
    is_elsewhere = (hashes % into) != receiver
    return is_elsewhere & hashes.is_in(spread.get_column("hash").implode())


def find_homes(spread: pl.DataFrame, into: int) -> list[int]:
    """Return the receivers to which the hashes of frequent keys send rows."""
    homes: list[int] = np.unique((spread.get_column("hash") % into).to_numpy()).tolist()
    return homes
