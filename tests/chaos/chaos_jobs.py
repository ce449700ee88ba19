"""Jobs that run while faults happen; each returns plain data that does not depend on the order.

All values are integers or text, so that equal results are equal exactly.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, as_completed

import hyperplane

# Workers cannot import the functions below from the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PARTS, ROWS = 12, 4000
#: Seconds that the first task of each partition sleeps, so that faults happen during the job.
PAUSE = 0.12
META = pd.DataFrame({"key": [1], "value": [1], "part": [1]})


def make_frame() -> dd.DataFrame:
    """Return 48,000 rows in 12 partitions; each value occurs once, 3,000 keys."""

    # Nested, because Dask pickles functions of modules by reference.
    def make(number: int) -> pd.DataFrame:
        time.sleep(PAUSE)
        dice = np.random.default_rng(number)
        return pd.DataFrame(
            {
                "key": dice.integers(0, 3000, ROWS),
                "value": dice.permutation(ROWS) * PARTS + number,
                "part": number,
            }
        )

    return dd.from_map(make, range(PARTS), meta=META)


def other_frame() -> dd.DataFrame:
    """Return some rows for each key in three partitions."""

    def make(number: int) -> pd.DataFrame:
        time.sleep(PAUSE)
        keys = np.arange(number * 1000, (number + 1) * 1000)
        return pd.DataFrame({"key": keys, "weight": keys * 3 + 1})

    return dd.from_map(make, range(3), meta=pd.DataFrame({"key": [1], "weight": [1]}))


def digest(frame: Any) -> list[int]:
    """Return the number of rows and a hash of all rows, in any order."""
    frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
    frame = frame.reset_index(drop=frame.index.names == [None])
    frame = frame[sorted(frame.columns)].astype("int64")
    hashes = pd.util.hash_pandas_object(frame, index=False)
    return [len(frame), int(hashes.sum() % 2**63), int((hashes // 7).max())]


def reduction(client: Client, work: Path) -> Any:
    df = make_frame()
    return [int(df.value.sum().compute()), len(df), int(df.key.max().compute())]


def group_by(client: Client, work: Path) -> Any:
    return digest(make_frame().groupby("key").agg({"value": ["sum", "max"]}).value.compute())


def group_by_shuffle(client: Client, work: Path) -> Any:
    found = make_frame().groupby("key").value.sum(split_out=4, shuffle_method="p2p")
    return digest(found.compute())


def merge(client: Client, work: Path) -> Any:
    merged = make_frame().merge(other_frame(), on="key", shuffle_method="p2p")
    return digest(merged.compute())


def shuffle(client: Client, work: Path) -> Any:
    return digest(make_frame().shuffle("key", shuffle_method="p2p").compute())


def set_index(client: Client, work: Path) -> Any:
    found = make_frame().set_index("value", shuffle_method="p2p").compute()
    assert found.index.is_monotonic_increasing
    return digest(found)


def sort(client: Client, work: Path) -> Any:
    found = make_frame().sort_values("value").compute()
    assert found.value.is_monotonic_increasing
    return digest(found)


def rechunk(client: Client, work: Path) -> Any:
    def slow(block: Any) -> Any:
        time.sleep(PAUSE)
        return block * 2

    array = da.arange(360_000, chunks=30_000).map_blocks(slow, dtype="int64").reshape(600, 600)
    array = array.rechunk((50, 600)).rechunk((600, 50), method="p2p")
    return [int(array.max(axis=0).sum().compute()), int(array[:, ::7].sum().compute())]


def bag(client: Client, work: Path) -> Any:
    def slow(number: int) -> int:
        time.sleep(PAUSE / 100)
        return number * number

    numbers = db.from_sequence(range(2400), npartitions=24).map(slow)
    folded = numbers.foldby(lambda n: n % 7, lambda a, b: a + b, 0, lambda a, b: a + b, 0)
    return sorted(map(list, folded.compute()))


def our_join(client: Client, work: Path) -> Any:
    return digest(hyperplane.dataframe.join(make_frame(), other_frame(), on="key").compute())


def our_group_agg(client: Client, work: Path) -> Any:
    found = hyperplane.dataframe.group_agg(
        make_frame(), "key", {"value": ["sum", "max"]}, split_out=3
    ).compute()
    found.columns = ["_".join(map(str, np.atleast_1d(name))) for name in found.columns]
    return digest(found)


def our_sort(client: Client, work: Path) -> Any:
    found = hyperplane.dataframe.sort_values(make_frame(), "value").compute()
    assert found.value.is_monotonic_increasing
    return digest(found)


def our_duplicates(client: Client, work: Path) -> Any:
    return digest(hyperplane.dataframe.drop_duplicates(make_frame(), ["key"]).compute())


def our_top(client: Client, work: Path) -> Any:
    return digest(hyperplane.dataframe.top_n_per_group(make_frame(), "key", "value", 2).compute())


def persisted(client: Client, work: Path) -> Any:
    df = make_frame().persist()
    first = int(df.value.sum().compute())
    return [first, digest(df.groupby("key").value.sum().compute())]


def futures(client: Client, work: Path) -> Any:
    def square(number: int) -> int:
        time.sleep(PAUSE / 2)
        return number * number

    found = client.map(square, range(40), pure=False)
    return sorted(future.result() for future in as_completed(found))


def scattered(client: Client, work: Path) -> Any:
    def add(numbers: Any, number: int) -> int:
        time.sleep(PAUSE / 2)
        return int(numbers.sum()) + number

    # With a hash as name, the data of a second call may be released with that of the first.
    numbers = client.scatter(np.arange(10_000), broadcast=True, hash=False)
    return client.gather([client.submit(add, numbers, n, pure=False) for n in range(40)])


#: Rows of the version that a run replaces.
OLD = pd.DataFrame({"key": range(500), "value": range(500), "part": -1})


def save(client: Client, work: Path) -> Any:
    """Replace a saved dataframe; readers see the old or the new one."""
    hyperplane.save(make_frame(), work / "saved", mode="overwrite", format="parquet")
    return read_saved(work)


def save_zarr(client: Client, work: Path) -> Any:
    def slow(block: Any) -> Any:
        time.sleep(PAUSE)
        return block + 1

    array = da.zeros((240, 50), chunks=(20, 50), dtype="int64").map_blocks(slow, dtype="int64")
    hyperplane.save(array, work / "array", mode="overwrite", format="zarr")
    found = hyperplane.load(work / "array").compute(scheduler="sync")
    return [list(found.shape), int(found.sum())]


def prepare_saved(work: Path) -> None:
    """Save the version that a run replaces."""
    hyperplane.save(
        dd.from_pandas(OLD, npartitions=2), work / "saved", mode="overwrite", format="parquet"
    )


def read_saved(work: Path) -> Any:
    """Return the digest of what a reader finds."""
    found = hyperplane.load(work / "saved")
    return digest(found.compute(scheduler="sync") if hasattr(found, "compute") else found)


JOBS: dict[str, Callable[[Client, Path], Any]] = {
    "reduction": reduction,
    "group-by": group_by,
    "group-by with shuffle": group_by_shuffle,
    "merge": merge,
    "shuffle": shuffle,
    "set_index": set_index,
    "sort": sort,
    "rechunk": rechunk,
    "bag": bag,
    "hyperplane join": our_join,
    "hyperplane group_agg": our_group_agg,
    "hyperplane sort_values": our_sort,
    "hyperplane drop_duplicates": our_duplicates,
    "hyperplane top_n_per_group": our_top,
    "persist": persisted,
    "futures": futures,
    "scatter": scattered,
    "save": save,
    "save zarr": save_zarr,
}
