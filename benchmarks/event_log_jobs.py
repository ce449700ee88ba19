"""Jobs of ``benchmarks.dataframes``, each in the idiomatic form of each library.

A job takes the folder of the event log and a glob of files, and returns numbers to compare.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Answer = list[float]
Job = Callable[[Path, str], Answer]


@contextlib.contextmanager
def _plain_dask() -> Iterator[None]:
    from distributed import Client, LocalCluster

    with LocalCluster(dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(lambda: __import__("dask.dataframe") and None)
        yield


@contextlib.contextmanager
def _hyperplane() -> Iterator[None]:
    import hyperplane

    with contextlib.redirect_stdout(None):
        client, cluster = hyperplane.initialize_cluster(
            num_workers=1, nprocs=1, nthreads=os.cpu_count() or 1, ram_gb_per_proc=8
        )
    yield
    client.close()
    cluster.close()


ENGINES: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "dask": _plain_dask,
    "hyperplane": _hyperplane,
    "pandas": contextlib.nullcontext,
    "polars": contextlib.nullcontext,
    "duckdb": contextlib.nullcontext,
}


def rounded(*numbers: Any) -> Answer:
    """Round numbers to nine digits, since the order of a sum changes the last ones."""
    return [float(f"{float(number):.9g}") for number in numbers]


def files_of(folder: Path, files: str) -> str:
    """Return the glob of the Parquet files."""
    return str(folder / "parquet" / files)


def from_pandas(folder: Path, files: str, columns: list[str]) -> Any:
    """Read the Parquet files to one pandas frame."""
    import pandas as pd

    paths = sorted((folder / "parquet").glob(files))
    return pd.concat([pd.read_parquet(path, columns=columns) for path in paths])


# Distinct users, and sums of values and items, per day.


def _windows_answer(table: Any) -> Answer:
    return rounded(len(table), table["user"].sum(), table["value"].sum(), table["items"].sum())


def windows_dask(folder: Path, files: str) -> Answer:
    import dask
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files))
    groups = df.assign(day=df["time"].dt.floor("D")).groupby("day")
    users, sums = dask.compute(groups["user"].nunique(), groups[["value", "items"]].sum())
    return _windows_answer(sums.assign(user=users))


def windows_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    wanted = {"user": "nunique", "value": "sum", "items": "sum"}
    table = hyperplane.dataframe.window_agg(
        files_of(folder, files), "time", "1D", wanted, closed="left", label="left"
    )
    return _windows_answer(table.compute())


def windows_pandas(folder: Path, files: str) -> Answer:
    import pandas as pd

    df = from_pandas(folder, files, ["time", "user", "value", "items"])
    wanted = {"user": "nunique", "value": "sum", "items": "sum"}
    return _windows_answer(df.groupby(pd.Grouper(key="time", freq="1D")).agg(wanted))


def windows_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    days = pl.scan_parquet(files_of(folder, files)).group_by(pl.col("time").dt.truncate("1d"))
    wanted = [pl.col("user").n_unique(), pl.col("value").sum(), pl.col("items").sum()]
    return _windows_answer(days.agg(wanted).collect(engine="streaming"))


def windows_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    return _windows_answer(
        duckdb.sql(
            "select date_trunc('day', time) as day, count(distinct user) as user, "
            "sum(value) as value, sum(items) as items "
            f"from read_parquet('{files_of(folder, files)}') group by day"
        ).pl()
    )


# Number of events per hour, one column for each type.


def _counts_answer(table: Any) -> Answer:
    return rounded(*table.shape, float(table.to_numpy().sum()), float(table.to_numpy().max()))


def counts_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files), columns=["time", "type"])
    df = df.assign(time=df["time"].dt.floor("h"))
    return _counts_answer(df.groupby(["time", "type"]).size().compute().unstack(fill_value=0))


def counts_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    counts = hyperplane.dataframe.window_counts(
        files_of(folder, files), "time", "1h", "type", closed="left", label="left"
    )
    return _counts_answer(counts.compute())


def counts_pandas(folder: Path, files: str) -> Answer:
    import pandas as pd

    df = from_pandas(folder, files, ["time", "type"])
    dummies = pd.get_dummies(df, columns=["type"])
    return _counts_answer(dummies.groupby(pd.Grouper(key="time", freq="1h")).sum())


def counts_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    scan = pl.scan_parquet(files_of(folder, files))
    long = scan.group_by(pl.col("time").dt.truncate("1h"), "type").len().collect(engine="streaming")
    return _counts_answer(long.pivot("type", index="time", values="len").fill_null(0).drop("time"))


def counts_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    return _counts_answer(
        duckdb.sql(
            "pivot (select date_trunc('hour', time) as hour, type "
            f"from read_parquet('{files_of(folder, files)}')) on type using count(*) group by hour"
        )
        .pl()
        .drop("hour")
    )
