"""Jobs of `admission.py` that need more memory than one worker of 1 GB has, of a fixed size.

    python -m benchmarks.admission --times 0 --jobs task_numpy task_python group_unique ...

They end in ``KilledWorker``, or not at all, on plain Dask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

#: Columns of eight bytes.
COLUMNS = 8


def make_part(part: int, rows: int, one_key: bool, name: str = "x") -> pd.DataFrame:
    """Generate one partition with unique keys in random order, or with one key."""
    start = np.arange(part * rows, (part + 1) * rows, dtype=np.int64)
    keys = np.zeros_like(start) if one_key else np.random.default_rng(part).permutation(start)
    values = {f"{name}{column}": keys + column for column in range(COLUMNS - 1)}
    return pd.DataFrame({"key": keys, **values})


def make_frame(
    size_mb: float, part_mb: float, one_key: bool = False, name: str = "x"
) -> tuple[Any, int]:
    """Return a data frame that is not yet computed, and its number of rows."""
    import dask.dataframe as dd

    rows, parts = int(part_mb * 1e6 / 8 / COLUMNS), round(size_mb / part_mb)
    meta = make_part(0, 1, one_key, name).iloc[:0]
    frame = dd.from_map(make_part, range(parts), rows=rows, one_key=one_key, name=name, meta=meta)
    return frame, rows * parts


def _check(found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"expected {expected}, found {found}")


def allocate_numpy() -> int:
    """Allocate 1.6 GB at once."""
    return int(np.ones(200_000_000).sum())


def allocate_steps() -> int:
    """Allocate 1.6 GB in steps of 50 MB."""
    import time

    parts = []
    for _ in range(32):
        parts.append(np.ones(6_250_000))
        time.sleep(0.05)
    return int(sum(part.sum() for part in parts))


def allocate_arrow() -> int:
    """Allocate two arrays of Arrow of 0.8 GB."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return int(pc.sum(pc.add(pa.array(np.ones(100_000_000)), 1.0)).as_py())


def allocate_python() -> int:
    """Allocate 1.6 GB as rows of Python objects."""
    rows = [(str(number), float(number)) for number in range(10_000_000)]
    return len(rows)


def run_task(function: Callable[[], int], expected: int) -> None:
    """Run one task."""
    from distributed import get_client

    _check(get_client().submit(function, pure=False).result(), expected)


def run_group_unique() -> None:
    """Collect the sums of 50 million unique keys in the client."""
    frame, rows = make_frame(3200, 64)
    sums = frame.groupby("key").sum().compute()
    total = rows * (rows - 1) // 2
    _check(
        (len(sums), int(sums["x0"].sum()), int(sums["x6"].sum())), (rows, total, total + 6 * rows)
    )


def run_group_reduced() -> None:
    """Reduce the sums of the same keys."""
    import dask

    frame, rows = make_frame(3200, 64)
    sums = frame.groupby("key", sort=False).sum(split_out=8)
    found = dask.compute(sums["x0"].sum(), sums["x6"].count())
    _check(tuple(map(int, found)), (rows * (rows - 1) // 2, rows))


def run_merge(part_mb: float) -> None:
    """Merge 2 x 1.9 GB by unique keys."""
    left, rows = make_frame(1920, part_mb)
    right, _ = make_frame(1920, part_mb, name="y")
    joined = left.merge(right, on="key").assign(n=1)
    found = joined[["x0", "y6", "n"]].sum().compute()
    total = rows * (rows - 1) // 2
    _check([int(value) for value in found], [total, total + 6 * rows, rows])


def run_apply_one_key() -> None:
    """Apply a function to the 2 GB of one key."""
    frame, rows = make_frame(2000, 62.5, one_key=True)
    found = frame.groupby("key").apply(len, meta=(None, "int64")).compute()
    _check(list(found), [rows])


MEMORY_JOBS: dict[str, Callable[[], None]] = {
    "task_numpy": lambda: run_task(allocate_numpy, 200_000_000),
    "task_steps": lambda: run_task(allocate_steps, 200_000_000),
    "task_arrow": lambda: run_task(allocate_arrow, 200_000_000),
    "task_python": lambda: run_task(allocate_python, 10_000_000),
    "group_unique": run_group_unique,
    "group_reduced": run_group_reduced,
    "merge_60": lambda: run_merge(60),
    "merge_240": lambda: run_merge(240),
    "apply_one_key": run_apply_one_key,
}
