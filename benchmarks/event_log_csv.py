"""Job of ``benchmarks.dataframes`` on the event log as CSV; see ``event_log_jobs``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.event_log_jobs import Answer, rounded

# Distinct users, and sums of values and items, per day, from CSV.

_COLUMNS = ["user", "time", "value", "items"]


def _files(folder: Path, files: str) -> str:
    return str(folder / "csv" / files.replace(".parquet", ".csv"))


def _answer(table: Any) -> Answer:
    return rounded(len(table), table["user"].sum(), table["value"].sum(), table["items"].sum())


def csv_dask(folder: Path, files: str) -> Answer:
    import dask
    import dask.dataframe as dd

    df = dd.read_csv(_files(folder, files), usecols=_COLUMNS, parse_dates=["time"])
    groups = df.assign(day=df["time"].dt.floor("D")).groupby("day")
    users, sums = dask.compute(groups["user"].nunique(), groups[["value", "items"]].sum())
    return _answer(sums.assign(user=users))


def csv_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    df = hyperplane.dataframe.read(_files(folder, files), _COLUMNS, parse_dates=["time"])
    wanted = {"user": "nunique", "value": "sum", "items": "sum"}
    table = hyperplane.dataframe.window_agg(df, "time", "1D", wanted, closed="left", label="left")
    return _answer(table.compute())


def csv_pandas(folder: Path, files: str) -> Answer:
    import pandas as pd

    paths = sorted((folder / "csv").glob(files.replace(".parquet", ".csv")))
    df = pd.concat([pd.read_csv(path, usecols=_COLUMNS, parse_dates=["time"]) for path in paths])
    wanted = {"user": "nunique", "value": "sum", "items": "sum"}
    return _answer(df.groupby(pd.Grouper(key="time", freq="1D")).agg(wanted))


def csv_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    rows = pl.scan_csv(_files(folder, files), try_parse_dates=True)
    days = rows.group_by(pl.col("time").dt.truncate("1d"))
    wanted = [pl.col("user").n_unique(), pl.col("value").sum(), pl.col("items").sum()]
    return _answer(days.agg(wanted).collect(engine="streaming"))


def csv_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    return _answer(
        duckdb.sql(
            "select date_trunc('day', time) as day, count(distinct user) as user, "
            "sum(value) as value, sum(items) as items "
            f"from read_csv('{_files(folder, files)}') group by day"
        ).pl()
    )
