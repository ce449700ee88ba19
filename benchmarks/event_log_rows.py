"""Jobs of ``benchmarks.dataframes`` that select, join and sort rows; see ``event_log_jobs``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.event_log_jobs import Answer, files_of, from_pandas, rounded

# The ten events of each type with the highest value, all columns.


def _top_answer(table: Any) -> Answer:
    return rounded(len(table), table["value"].sum(), table["value"].min())


def top_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files))
    groups = df.groupby("type")[list(df.columns)]
    return _top_answer(
        groups.apply(lambda rows: rows.nlargest(10, "value"), meta=df._meta).compute()
    )


def top_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    top = hyperplane.dataframe.top_n_per_group(files_of(folder, files), "type", "value", 10)
    return _top_answer(top.compute())


def top_pandas(folder: Path, files: str) -> Answer:
    df = from_pandas(folder, files, ["user", "time", "type", "value", "items"])
    return _top_answer(df.groupby("type").apply(lambda rows: rows.nlargest(10, "value")))


def top_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    groups = pl.scan_parquet(files_of(folder, files)).group_by("type")
    rows = groups.agg(pl.all().top_k_by("value", 10)).explode(pl.exclude("type"))
    return _top_answer(rows.collect(engine="streaming"))


def top_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    return _top_answer(
        duckdb.sql(
            f"select * from read_parquet('{files_of(folder, files)}') "
            "qualify row_number() over (partition by type order by value desc) <= 10"
        ).pl()
    )


# Mean value and number of events per type, of those with a value above 20.


def _filter_answer(table: Any) -> Answer:
    return rounded(len(table), table["mean"].sum(), table["count"].sum())


def filter_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files))
    large = df[df["value"] > 20]
    return _filter_answer(large.groupby("type")["value"].agg(["mean", "count"]).compute())


def filter_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    df = hyperplane.dataframe.read(files_of(folder, files))
    table = hyperplane.dataframe.group_agg(
        df[df["value"] > 20], "type", {"value": ["mean", "count"]}
    )
    return _filter_answer(table.compute()["value"])


def filter_pandas(folder: Path, files: str) -> Answer:
    df = from_pandas(folder, files, ["type", "value"])
    return _filter_answer(df[df["value"] > 20].groupby("type")["value"].agg(["mean", "count"]))


def filter_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    large = pl.scan_parquet(files_of(folder, files)).filter(pl.col("value") > 20)
    value = pl.col("value")
    table = large.group_by("type").agg(mean=value.mean(), count=value.count())
    return _filter_answer(table.collect(engine="streaming"))


def filter_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    return _filter_answer(
        duckdb.sql(
            "select type, avg(value) as mean, count(value) as count "
            f"from read_parquet('{files_of(folder, files)}') where value > 20 group by type"
        ).pl()
    )


# Distinct pairs of user and type.


def duplicates_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files), columns=["user", "type"])
    return rounded(len(df.drop_duplicates().compute()))


def duplicates_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    df = hyperplane.dataframe.read(files_of(folder, files), columns=["user", "type"])
    return rounded(len(hyperplane.dataframe.drop_duplicates(df).compute()))


def duplicates_pandas(folder: Path, files: str) -> Answer:
    return rounded(len(from_pandas(folder, files, ["user", "type"]).drop_duplicates()))


def duplicates_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    pairs = pl.scan_parquet(files_of(folder, files)).select("user", "type").unique()
    return rounded(pairs.collect(engine="streaming").height)


def duplicates_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    files = files_of(folder, files)
    return rounded(
        duckdb.sql(f"select distinct user, type from read_parquet('{files}')").pl().height
    )


# Sum of values by country: a join to a table of 200,000 users.


def _join_answer(table: Any) -> Answer:
    return rounded(len(table), table["value"].sum(), table["value"].max())


def join_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files))
    users = dd.read_parquet(folder / "users")
    joined = df.merge(users, on="user").groupby("country")[["value"]].sum()
    return _join_answer(joined.compute())


def join_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    joined = hyperplane.dataframe.join(files_of(folder, files), str(folder / "users"), "user")
    table = hyperplane.dataframe.group_agg(joined, "country", {"value": "sum"})
    return _join_answer(table.compute())


def join_pandas(folder: Path, files: str) -> Answer:
    import pandas as pd

    users = pd.read_parquet(folder / "users")
    joined = from_pandas(folder, files, ["user", "value"]).merge(users, on="user")
    return _join_answer(joined.groupby("country")[["value"]].sum())


def join_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    users = pl.scan_parquet(folder / "users")
    joined = pl.scan_parquet(files_of(folder, files)).join(users, on="user")
    table = joined.group_by("country").agg(pl.col("value").sum())
    return _join_answer(table.collect(engine="streaming"))


def join_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    return _join_answer(
        duckdb.sql(
            "select country, sum(value) as value "
            f"from read_parquet('{files_of(folder, files)}') "
            f"join read_parquet('{folder}/users/*.parquet') using (user) group by country"
        ).pl()
    )


# All rows sorted by value; the answer has the first and last row of each partition.

_SORTED = ["user", "value", "items"]


def ends(rows: Any) -> Any:
    """Return the first and last row of sorted rows as pandas."""
    import pandas as pd

    frame = pd.DataFrame({name: rows[name].iloc[[0, -1]].to_numpy() for name in _SORTED})
    return frame.assign(rows=len(rows)).astype("float64")


def _sort_answer(table: Any) -> Answer:
    values = table["value"].to_numpy()
    assert (values[1:] >= values[:-1]).all()
    return rounded(values[0], values[-1], table["rows"][::2].sum())


def sort_dask(folder: Path, files: str) -> Answer:
    import dask.dataframe as dd

    df = dd.read_parquet(files_of(folder, files), columns=_SORTED)
    meta = dict.fromkeys([*_SORTED, "rows"], "float64")
    return _sort_answer(df.sort_values("value").map_partitions(ends, meta=meta).compute())


def sort_hyperplane(folder: Path, files: str) -> Answer:
    import hyperplane

    df = hyperplane.dataframe.read(files_of(folder, files), columns=_SORTED)
    meta = dict.fromkeys([*_SORTED, "rows"], "float64")
    rows = hyperplane.dataframe.sort_values(df, "value")
    return _sort_answer(rows.map_partitions(ends, meta=meta).compute())


def sort_pandas(folder: Path, files: str) -> Answer:
    rows = from_pandas(folder, files, _SORTED)
    return _sort_answer(ends(rows.sort_values("value", kind="stable")))


def sort_polars(folder: Path, files: str) -> Answer:
    import polars as pl

    rows = pl.scan_parquet(files_of(folder, files)).select(_SORTED)
    table = rows.sort("value").collect(engine="streaming")
    return _sort_answer(ends(table[[0, -1]].to_pandas()).assign(rows=table.height))


def sort_duckdb(folder: Path, files: str) -> Answer:
    import duckdb

    table = duckdb.sql(
        f"select {', '.join(_SORTED)} from read_parquet('{files_of(folder, files)}') order by value"
    ).pl()
    return _sort_answer(ends(table[[0, -1]].to_pandas()).assign(rows=table.height))
