"""Inner and left joins of two large tables with hyperplane, plain Dask, Polars and DuckDB.

Jobs of ``benchmarks.joins``. Each joins a table of orders with a table of as many details by
another key, and returns the number of rows and the sums of all other columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Answer = list[int]
SUMS = ("amount", "price", "weight")
#: Number of some key, which many rows have.
HOT = 7


@dataclass(frozen=True)
class LargeJoin:
    """Key column of both tables, and the kind of join."""

    key: str
    how: str = "inner"


JOINS = {
    "unique": LargeJoin("id"),
    "many": LargeJoin("group"),
    "text": LargeJoin("code"),
    "missing": LargeJoin("partial", "left"),
    "hot": LargeJoin("hot"),
    "hot_right": LargeJoin("hot_right", "left"),
}


def write_large_tables(folder: Path, rows: int, files: int) -> None:
    """Write orders and details, in random order, with a column for each key.

    ``id`` and ``code`` are unique, four rows of each side have a ``group``, a fifth of the orders
    and one row of the details have no ``partial``, and 60 % of the rows of one side have one
    ``hot`` or ``hot_right``.
    """
    import pandas as pd

    generator = np.random.default_rng(2)
    tables = {}
    for name in ("orders", "details"):
        numbers = generator.permutation(rows)
        table = pd.DataFrame({"id": numbers, "group": generator.permutation(rows) // 4})
        table["code"] = [f"{number * 2_654_435_761 % 2**64:016x}" for number in numbers.tolist()]
        table["hot"] = table["hot_right"] = table["id"]
        table["partial"] = table["id"].astype("float64")
        tables[name] = table
    orders, details = tables["orders"], tables["details"]
    orders.loc[generator.random(rows) < 0.2, "partial"] = np.nan
    details.loc[HOT, "partial"] = np.nan
    is_hot = (generator.random(rows) < 0.6) & (orders["id"] != HOT)
    orders["hot"] = np.where(is_hot, HOT, orders["id"])
    is_hot = (generator.random(rows) < 0.6) & (details["id"] != HOT)
    details["hot_right"] = np.where(is_hot, HOT, details["id"])
    orders["amount"], orders["price"] = np.arange(rows) % 1000, generator.integers(0, 10**6, rows)
    details["weight"] = generator.integers(0, 100, rows)
    for name, table in tables.items():
        (folder / name).mkdir()
        for number, part in enumerate(np.array_split(np.arange(rows), files)):
            table.iloc[part].to_parquet(folder / name / f"{number:03}.parquet")


def _open_dask(folder: Path, join: LargeJoin) -> tuple[Any, Any]:
    import dask.dataframe as dd

    columns = {"orders": [join.key, "amount", "price"], "details": [join.key, "weight"]}
    orders, details = (
        dd.read_parquet(folder / name, columns=names) for name, names in columns.items()
    )
    return orders, details


def join_hyperplane(folder: Path, join: LargeJoin) -> Answer:
    """Join collections of Dask with hyperplane."""
    from hyperplane.dataframe import join as join_frames

    return _sum_dask(join_frames(*_open_dask(folder, join), join.key, join.how))  # type: ignore[arg-type]


def join_dask(folder: Path, join: LargeJoin) -> Answer:
    """Join collections of Dask with Dask, which chooses the method."""
    orders, details = _open_dask(folder, join)
    return _sum_dask(orders.merge(details, on=join.key, how=join.how))


def join_polars(folder: Path, join: LargeJoin) -> Answer:
    """Join files with Polars; missing keys are equal, as in pandas."""
    import polars as pl

    orders, details = (pl.scan_parquet(folder / name) for name in ("orders", "details"))
    how: Any = join.how
    left = orders.select(join.key, "amount", "price").with_columns(_nan_to_null(join))
    right = details.select(join.key, "weight").with_columns(_nan_to_null(join))
    joined = left.join(right, on=join.key, how=how, nulls_equal=True)
    answer = joined.select(pl.len(), pl.col(SUMS).sum()).collect(engine="streaming").row(0)
    return [int(value) for value in answer]


def _nan_to_null(join: LargeJoin) -> Any:
    import polars as pl

    return pl.col(join.key).fill_nan(None) if join.key == "partial" else pl.col(join.key)


def join_duckdb(folder: Path, join: LargeJoin) -> Answer:
    """Join files with DuckDB; missing keys are equal, as in pandas."""
    import duckdb

    sums = ", ".join(f"sum({name})" for name in SUMS)
    equal = f"o.{join.key} is not distinct from d.{join.key}"
    query = (
        f"select count(*), {sums} from '{folder}/orders/*.parquet' o "
        f"{join.how} join '{folder}/details/*.parquet' d on {equal}"
    )
    (answer,) = duckdb.sql(query).fetchall()
    return [int(value) for value in answer]


def _sum_dask(joined: Any) -> Answer:
    """Return the number of rows and the sums of columns, which alone partitions have."""
    import pandas as pd

    meta = pd.DataFrame({name: pd.Series(dtype="int64") for name in ("rows", *SUMS)})
    parts = joined[list(SUMS)].map_partitions(_sum_partition, meta=meta).compute()
    return [int(parts[name].sum()) for name in ("rows", *SUMS)]


def _sum_partition(frame: Any) -> Any:
    import pandas as pd

    sums = {name: [int(frame[name].sum())] for name in SUMS}
    return pd.DataFrame({"rows": [len(frame)], **sums})


ENGINES = {
    "hyperplane": join_hyperplane,
    "dask": join_dask,
    "polars": join_polars,
    "duckdb": join_duckdb,
}
JOBS: dict[str, dict[str, Callable[[Path], Answer]]] = {
    name: {engine: partial(run, join=join) for engine, run in ENGINES.items()}
    for name, join in JOINS.items()
}
