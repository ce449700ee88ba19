"""The jobs, with hyperplane, plain Dask, Polars and DuckDB; each writes its result as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.out_of_core.data import list_files

ORDERS, DETAILS = ["at", "amount", "price", "note"], ["weight", "place", "share", "remark"]
#: Two columns of text, each pair of which two orders have.
TEXT = ["user", "note"]


@dataclass(frozen=True)
class Tables:
    """Folder of the data, and the number of blocks of each table that are read."""

    folder: Path
    blocks: int

    def list_files(self, table: str) -> list[str]:
        """Return the files of a table."""
        return list_files(self.folder, table, self.blocks)


@dataclass(frozen=True)
class Job:
    """A job.

    Parameters
    ----------
    kind : {"join", "sort", "duplicates", "groups", "top"}
        What it does.
    keys : list of str
        Columns that are joined, sorted or grouped by.
    how : {"inner", "left"}
        Kind of join.
    blocks : int
        Blocks of data for each GB of memory: about four times as many bytes.
    """

    kind: str
    keys: list[str]
    how: str = "inner"
    blocks: int = 3

    def select_hashed(self) -> list[str]:
        """Return expressions of DuckDB that depend on every row, but not on their order."""
        if self.kind == "join":
            names = [*self.keys, *ORDERS, *DETAILS]
        elif self.kind == "groups":
            names = [*self.keys, "total", "number", "dearest"]
        elif self.kind == "duplicates":  # which of equal rows is kept depends on their order
            names = self.keys
        else:
            names = ["id", "sparse", "pair", "hot", "hot_right", "code", "user", *ORDERS]
        return ["count(*)", f"sum(hash({quote(names)}))"]


def quote(names: list[str]) -> str:
    """Return names of columns for DuckDB."""
    return ", ".join(f'"{name}"' for name in names)


JOBS = {
    "unique": Job("join", ["id"]),
    "left": Job("join", ["sparse"], "left"),
    "hot": Job("join", ["hot"]),
    "hot_right": Job("join", ["hot_right"], "left"),
    "text": Job("join", ["code"]),
    "many": Job("join", ["pair"]),
    "sort": Job("sort", ["at"], blocks=4),
    "sort2": Job("sort", ["note", "at"], blocks=4),
    "duplicates": Job("duplicates", TEXT, blocks=4),
    "groups": Job("groups", TEXT, blocks=6),
    "top": Job("top", ["user"], blocks=4),
}


def run_hyperplane(job: Job, tables: Tables, target: str) -> None:
    """Run a job with hyperplane, on the active cluster."""
    import hyperplane
    from hyperplane import dataframe

    if job.kind == "join":
        left = dataframe.read(tables.list_files("orders"), [*job.keys, *ORDERS])
        right = dataframe.read(tables.list_files("details"), [*job.keys, *DETAILS])
        how: Any = job.how
        result = dataframe.join(left, right, job.keys, how)
    elif job.kind == "groups":
        rows = dataframe.read(tables.list_files("orders"), [*job.keys, "amount", "price"])
        functions = {"amount": ["sum", "count"], "price": ["max"]}
        result = dataframe.group_agg(rows, job.keys, functions, split_out=None)
        result.columns = ["total", "number", "dearest"]
        result = result.reset_index()
    else:
        rows = dataframe.read(tables.list_files("orders"))
        if job.kind == "sort":
            result = dataframe.sort_values(rows, job.keys)
        elif job.kind == "duplicates":
            result = dataframe.drop_duplicates(rows, job.keys)
        else:
            result = dataframe.top_n_per_group(rows, job.keys, "price", 1, split_out=None)
    hyperplane.save(result, target, format="parquet")


def run_dask(job: Job, tables: Tables, target: str) -> None:
    """Run a job with plain Dask, on the active cluster."""
    import dask.dataframe as dd

    if job.kind == "join":
        left = dd.read_parquet(tables.list_files("orders"), columns=[*job.keys, *ORDERS])
        right = dd.read_parquet(tables.list_files("details"), columns=[*job.keys, *DETAILS])
        result = left.merge(right, on=job.keys, how=job.how)
    elif job.kind == "groups":
        columns = [*job.keys, "amount", "price"]
        rows = dd.read_parquet(tables.list_files("orders"), columns=columns)
        functions = {"amount": ["sum", "count"], "price": ["max"]}
        result = rows.groupby(job.keys).agg(functions, split_out=rows.npartitions)
        result.columns = ["total", "number", "dearest"]
        result = result.reset_index()
    else:
        rows = dd.read_parquet(tables.list_files("orders"))
        if job.kind == "sort":
            result = rows.sort_values(job.keys)
        elif job.kind == "duplicates":
            result = rows.drop_duplicates(subset=job.keys, split_out=rows.npartitions)
        else:
            result = rows.groupby(job.keys).apply(_select_dearest, meta=rows._meta)
    result.to_parquet(target, write_index=False)


def _select_dearest(rows: Any) -> Any:
    return rows.nlargest(1, "price")


def run_polars(job: Job, tables: Tables, target: str) -> None:
    """Run a job with the streaming engine of Polars, whose memory has no limit."""
    import polars as pl

    rows = pl.scan_parquet(tables.list_files("orders"))
    if job.kind == "join":
        details = pl.scan_parquet(tables.list_files("details")).select(*job.keys, *DETAILS)
        how: Any = job.how
        orders = rows.select(*job.keys, *ORDERS)
        rows = orders.join(details, on=job.keys, how=how, nulls_equal=True)
    elif job.kind == "groups":
        amount, price = pl.col("amount"), pl.col("price")
        functions = [amount.sum().alias("total"), amount.count().alias("number")]
        rows = rows.group_by(job.keys).agg(*functions, price.max().alias("dearest"))
    elif job.kind == "sort":
        rows = rows.sort(job.keys, nulls_last=True)
    elif job.kind == "duplicates":
        rows = rows.unique(job.keys)
    else:
        rows = rows.group_by(job.keys).agg(pl.all().sort_by("price").last())
    Path(target).mkdir()
    rows.sink_parquet(Path(target, "0.parquet"), compression="snappy", engine="streaming")


def run_duckdb(job: Job, tables: Tables, target: str) -> None:
    """Run a job with DuckDB, which has limits of memory and threads already."""
    import duckdb

    keys = quote(job.keys)
    orders = f"read_parquet({tables.list_files('orders')})"
    if job.kind == "join":
        details = f"read_parquet({tables.list_files('details')})"
        (key,) = job.keys
        columns = f"o.{key}, {quote([*ORDERS, *DETAILS])}"
        equal = f"o.{key} is not distinct from d.{key}"
        query = f"select {columns} from {orders} o {job.how} join {details} d on {equal}"
    elif job.kind == "groups":
        functions = "sum(amount)::bigint total, count(amount) number, max(price) dearest"
        query = f"select {keys}, {functions} from {orders} group by {keys}"
    elif job.kind == "sort":
        order = ", ".join(f'"{name}" nulls last' for name in job.keys)
        query = f"from {orders} order by {order}"
    elif job.kind == "duplicates":
        query = f"select distinct on ({keys}) * from {orders}"
    else:
        rank = f"row_number() over (partition by {keys} order by price desc)"
        query = f"from {orders} qualify {rank} = 1"
    Path(target).mkdir()
    duckdb.sql(f"copy ({query}) to '{target}/0.parquet' (format parquet, compression snappy)")


ENGINES: dict[str, Callable[[Job, Tables, str], None]] = {
    "hyperplane": run_hyperplane,
    "dask": run_dask,
    "polars": run_polars,
    "duckdb": run_duckdb,
}
