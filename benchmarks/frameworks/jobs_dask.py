"""The jobs with Dask: plain on a default ``LocalCluster``, and with hyperplane on its cluster."""

from __future__ import annotations

from pathlib import Path

from benchmarks.event_log_jobs import ENGINES
from benchmarks.frameworks.answers import (
    Answer,
    fitted,
    read_sorted,
    rounded,
)

start_dask, start_hyperplane = ENGINES["dask"], ENGINES["hyperplane"]


def scan_dask(events: str, folder: Path) -> Answer:
    import dask
    import dask.dataframe as dd

    df = dd.read_parquet(events, columns=["type", "items"], filters=[("type", "==", "buy")])
    return rounded(*dask.compute(df["items"].size, df["items"].sum()))


def scan_hyperplane(events: str, folder: Path) -> Answer:
    import dask

    import hyperplane

    df = hyperplane.dataframe.read(events)
    bought = df[df["type"] == "buy"]["items"]
    return rounded(*dask.compute(bought.size, bought.sum()))


def group_dask(events: str, folder: Path) -> Answer:
    import dask.dataframe as dd

    groups = dd.read_parquet(events).groupby("user")["value"]
    sums = groups.agg(["count", "sum"], split_out=4)
    return rounded(len(sums), sums["sum"].max().compute(), sums["count"].max().compute())


def group_hyperplane(events: str, folder: Path) -> Answer:
    import dask

    import hyperplane

    sums = hyperplane.dataframe.group_agg(events, "user", {"value": ["count", "sum"]})["value"]
    number, largest, most = dask.compute(
        sums.map_partitions(len), sums["sum"].max(), sums["count"].max()
    )
    return rounded(sum(number), largest, most)


def join_dask(events: str, folder: Path) -> Answer:
    import dask.dataframe as dd

    users = dd.read_parquet(str(folder / "users" / "*.parquet"))
    joined = dd.read_parquet(events, columns=["user", "value"]).merge(users, on="user")
    sums = joined.groupby("country")["value"].sum().compute()
    return rounded(len(sums), sums.sum(), sums.max())


def join_hyperplane(events: str, folder: Path) -> Answer:
    import hyperplane

    users = str(folder / "users" / "*.parquet")
    df = hyperplane.dataframe.read(events, columns=["user", "value"])
    joined = hyperplane.dataframe.join(df, users, on="user", how="inner")
    sums = hyperplane.dataframe.group_agg(joined, "country", {"value": "sum"}).compute()["value"]
    return rounded(len(sums), sums.sum(), sums.max())


def sort_dask(events: str, folder: Path) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(events).sort_values("value")
    df.to_parquet(folder / "sorted", write_index=False)
    return read_sorted(folder / "sorted")


def sort_hyperplane(events: str, folder: Path) -> Answer:
    import hyperplane

    df = hyperplane.dataframe.sort_values(events, "value")
    hyperplane.save(df, folder / "sorted" / "all.parquet")
    return read_sorted(folder / "sorted")


def train_dask(events: str, folder: Path) -> Answer:
    import dask
    import dask.array as da
    import dask.dataframe as dd

    df = dd.read_parquet(events, columns=["items", "time", "value"])
    df = df.assign(one=1.0, hour=df["time"].dt.hour)[["one", "items", "hour", "value"]]
    rows = df.astype("float64").to_dask_array().compute_chunk_sizes()
    coefficients, *_ = dask.compute(da.linalg.lstsq(rows[:, :3], rows[:, 3])[0])
    return fitted(coefficients)


def train_hyperplane(events: str, folder: Path) -> Answer:
    import dask
    import dask.array as da

    import hyperplane

    df = hyperplane.dataframe.read(events, columns=["items", "time", "value"])
    df = df.assign(one=1.0, hour=df["time"].dt.hour)[["one", "items", "hour", "value"]]
    rows = df.astype("float64").to_dask_array().compute_chunk_sizes()
    coefficients, *_ = dask.compute(da.linalg.lstsq(rows[:, :3], rows[:, 3])[0])
    return fitted(coefficients)
