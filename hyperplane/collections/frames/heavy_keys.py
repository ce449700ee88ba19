"""Exchange of the two sides of a join by hashes of keys; rows of frequent keys are spread.

All rows with one key in one task would make that task as long as the key is frequent. A task that
sends rows of the larger side sends those of a frequent key to partitions that depend on its own
number. Rows of the other side with the same hash are copied to all of these partitions. Each row of
the larger side is in one partition only, so that the joined rows are the same.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl

from hyperplane.core.dask_internals.frames import Shuffle, new_collection

#: Column with the number of the partition in which a row is joined; Dask's name for it.
PARTITION = "_partitions"
#: Minimum rows of one key in a partition that are spread.
_MIN_ROWS = 1_000
#: How many times as many rows as the average of a joined partition a frequent key has.
_MIN_SHARE = 2.0
#: Empty table of the hashes of frequent keys, and partitions to which their rows are sent.
SPREAD_META = pd.DataFrame({"hash": np.array([], "uint64"), "partition": np.array([], "int64")})


def spread_rows(hashes: pl.Series, into: int, number: int, senders: int) -> pl.Series:
    """Return the partition of each row of one of several sending partitions.

    Parameters
    ----------
    hashes : polars.Series
        Hash of the keys of each row.
    into : int
        Number of partitions that receive rows.
    number, senders : int
        Number of the sending partition, and of all of them.
    """
    home = (hashes % into).cast(pl.Int64)
    rows = pl.DataFrame({"hash": hashes, "home": home})
    limit = max(_MIN_ROWS, _MIN_SHARE * len(hashes) / into)
    frequent = rows.lazy().group_by("hash").len().filter(pl.col("len") > limit).collect()
    if not len(frequent):
        return home
    # If there are more receivers than senders, each sender has several of them.
    width = max(1, into // senders)
    row_of_key = pl.int_range(pl.len()).over("hash")
    spread = (pl.col("home") + number * width + row_of_key % width) % into
    is_frequent = pl.col("hash").is_in(frequent.get_column("hash").implode())
    return rows.select(pl.when(is_frequent).then(spread).otherwise("home")).to_series()


def list_spread(hashes: pl.Series, partitions: pl.Series, into: int) -> pd.DataFrame:
    """Return hashes and partitions of the rows that are not where their hash alone sends them."""
    rows = pl.DataFrame({"hash": hashes, "partition": partitions.cast(pl.Int64)})
    is_moved = pl.col("partition") != (pl.col("hash") % into).cast(pl.Int64)
    moved = rows.filter(is_moved).unique()
    return pd.DataFrame({name: moved.get_column(name).to_numpy() for name in moved.columns})


def copy_rows(
    frame: pd.DataFrame, hashes: pl.Series, into: int, spread: pd.DataFrame
) -> pd.DataFrame:
    """Return rows with their partitions; copies for each partition with rows of the same hash."""
    home = (hashes % into).cast(pl.Int64).to_numpy()
    targets = pl.DataFrame({name: spread[name].to_numpy() for name in SPREAD_META}).unique()
    copies = pl.DataFrame({"hash": hashes}).with_row_index("row").join(targets, on="hash")
    if not len(copies):
        return frame.assign(**{PARTITION: home})
    rows = np.concatenate([np.arange(len(frame)), copies.get_column("row").to_numpy()])
    partitions = np.concatenate([home, copies.get_column("partition").to_numpy()])
    return frame.iloc[rows].assign(**{PARTITION: partitions})


def shuffle_marked(marked: dd.DataFrame, into: int) -> dd.DataFrame:
    """Shuffle rows to the partitions of their numbers in the column ``PARTITION``.

    ``shuffle`` of Dask would use the hashes of these numbers: some partitions would get the rows of
    several numbers, and others none.
    """
    hashed = marked.shuffle(on=PARTITION, npartitions=into).expr  # checks the types of columns
    names = [name for name in marked.columns if name != PARTITION]
    shuffled = Shuffle(
        marked.expr,
        PARTITION,
        into,
        hashed.ignore_index,
        hashed.method,
        hashed.options,
        original_partitioning_index=[PARTITION],
    )
    result: dd.DataFrame = new_collection(shuffled)[names]
    return result
