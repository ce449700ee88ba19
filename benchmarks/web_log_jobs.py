"""Jobs of ``benchmarks.dataframes`` on the web log; see ``event_log_jobs``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.event_log_jobs import Answer, files_of, from_pandas, rounded

# Bytes and requests by plan: a join to a table of two million users.

_JOINED = ["user", "bytes", "plan"]


def _join_answer(table: Any) -> Answer:
    sums, counts = (table[name].to_numpy().astype("float64") for name in ("sum", "count"))
    return rounded(len(table), sums.sum(), sums.max(), counts.sum(), counts.max())


def web_join_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files))
    users = dd.read_parquet(folder / "users")
    joined = df.merge(users, on="user")[_JOINED]
    return _join_answer(joined.groupby("plan")["bytes"].agg(["sum", "count"]).compute())


def web_join_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    joined = hyperplane.dataframe.join(files_of(folder, files), str(folder / "users"), "user")
    table = hyperplane.dataframe.group_agg(joined, "plan", {"bytes": ["sum", "count"]})
    return _join_answer(table.compute()["bytes"])


def web_join_pandas(folder: Path, files: str) -> Answer:
    import pandas as pd

    users = pd.read_parquet(folder / "users", columns=["user", "plan"])
    joined = from_pandas(folder, files, ["user", "bytes"]).merge(users, on="user")
    return _join_answer(joined.groupby("plan")["bytes"].agg(["sum", "count"]))


def web_join_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    users = pl.scan_parquet(folder / "users")
    joined = pl.scan_parquet(files_of(folder, files)).join(users, on="user")
    size = pl.col("bytes")
    table = joined.group_by("plan").agg(size.sum().alias("sum"), size.count().alias("count"))
    return _join_answer(table.collect(engine="streaming"))


def web_join_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    return _join_answer(
        duckdb.sql(
            "select plan, sum(bytes)::bigint as sum, count(bytes) as count "
            f"from read_parquet('{files_of(folder, files)}') "
            f"join read_parquet('{folder}/users/*.parquet') using (user) group by plan"
        ).pl()
    )


# The five slowest requests of each user.

_TOP = ["user", "path", "bytes", "seconds"]


def _top_answer(table: Any) -> Answer:
    return rounded(len(table), table["seconds"].sum(), table["bytes"].sum())


def web_top_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files), columns=_TOP)

    def largest(rows: Any) -> Any:
        return rows.sort_values("seconds", ascending=False).groupby("user").head(5)

    # A row among the first five of all files is among the first five of its partition.
    candidates = df.map_partitions(largest, meta=df._meta).shuffle("user")
    return _top_answer(candidates.map_partitions(largest, meta=df._meta).compute())


def web_top_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    df = hyperplane.dataframe.read(files_of(folder, files), columns=_TOP)
    top = hyperplane.dataframe.top_n_per_group(df, "user", "seconds", 5)
    return _top_answer(top.compute())


def web_top_pandas(folder: Path, files: str) -> Answer:
    df = from_pandas(folder, files, _TOP)
    return _top_answer(df.sort_values("seconds", ascending=False).groupby("user").head(5))


def web_top_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    groups = pl.scan_parquet(files_of(folder, files)).select(_TOP).group_by("user")
    rows = groups.agg(pl.all().top_k_by("seconds", 5)).explode(pl.exclude("user"))
    return _top_answer(rows.collect(engine="streaming"))


def web_top_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    return _top_answer(
        duckdb.sql(
            f"select {', '.join(_TOP)} from read_parquet('{files_of(folder, files)}') "
            "qualify row_number() over (partition by user order by seconds desc) <= 5"
        ).pl()
    )


# Distinct pairs of user and path.

_PAIR = ["user", "path"]


def web_duplicates_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    return rounded(len(dd.read_parquet(files_of(folder, files), columns=_PAIR).drop_duplicates()))


def web_duplicates_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    df = hyperplane.dataframe.read(files_of(folder, files), columns=_PAIR)
    return rounded(len(hyperplane.dataframe.drop_duplicates(df)))


def web_duplicates_pandas(folder: Path, files: str) -> Answer:
    return rounded(len(from_pandas(folder, files, _PAIR).drop_duplicates()))


def web_duplicates_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    pairs = pl.scan_parquet(files_of(folder, files)).select(_PAIR).unique()
    return rounded(pairs.collect(engine="streaming").height)


def web_duplicates_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    files = files_of(folder, files)
    return rounded(
        duckdb.sql(f"select distinct user, path from read_parquet('{files}')").pl().height
    )
