"""The jobs with Polars and DuckDB, in this process."""

from __future__ import annotations

from pathlib import Path

from benchmarks.frameworks.answers import (
    Answer,
    fitted,
    read_sorted,
    rounded,
)


def scan_polars(events: str, folder: Path) -> Answer:
    import polars as pl

    rows = pl.scan_parquet(events).filter(pl.col("type") == "buy")
    found = rows.select(pl.len(), pl.col("items").sum()).collect(engine="streaming")
    return rounded(*found.row(0))


def scan_duckdb(events: str, folder: Path) -> Answer:
    import duckdb

    query = f"select count(*), sum(items) from '{events}' where type = 'buy'"
    return rounded(*duckdb.sql(query).fetchall()[0])


def group_polars(events: str, folder: Path) -> Answer:
    import polars as pl

    value = pl.col("value")
    sums = pl.scan_parquet(events).group_by("user").agg(value.sum(), pl.len().alias("count"))
    totals = sums.select(pl.len(), value.max(), pl.col("count").max())
    return rounded(*totals.collect(engine="streaming").row(0))


def group_duckdb(events: str, folder: Path) -> Answer:
    import duckdb

    return rounded(
        *duckdb.sql(
            "select count(*), max(value), max(count) from "
            f"(select sum(value) as value, count(*) as count from '{events}' group by user)"
        ).fetchall()[0]
    )


def join_polars(events: str, folder: Path) -> Answer:
    import polars as pl

    users = pl.scan_parquet(str(folder / "users" / "*.parquet"))
    joined = pl.scan_parquet(events).join(users, on="user")
    sums = joined.group_by("country").agg(pl.col("value").sum()).collect(engine="streaming")
    return rounded(len(sums), sums["value"].sum(), sums["value"].max())


def join_duckdb(events: str, folder: Path) -> Answer:
    import duckdb

    return rounded(
        *duckdb.sql(
            "select count(*), sum(value), max(value) from (select sum(value) as value from "
            f"'{events}' join '{folder}/users/*.parquet' using (user) group by country)"
        ).fetchall()[0]
    )


def sort_polars(events: str, folder: Path) -> Answer:
    import polars as pl

    (folder / "sorted").mkdir()
    pl.scan_parquet(events).sort("value").sink_parquet(folder / "sorted" / "all.parquet")
    return read_sorted(folder / "sorted")


def sort_duckdb(events: str, folder: Path) -> Answer:
    import duckdb

    (folder / "sorted").mkdir()
    query = f"copy (from '{events}' order by value) to '{folder}/sorted/all.parquet'"
    duckdb.sql(query)
    return read_sorted(folder / "sorted")


def train_polars(events: str, folder: Path) -> Answer:
    import polars as pl
    from sklearn.linear_model import LinearRegression

    columns = [pl.col("items"), pl.col("time").dt.hour(), pl.col("value")]
    rows = pl.scan_parquet(events).select(columns).collect(engine="streaming")
    model = LinearRegression().fit(
        rows.select("items", "time").to_numpy(), rows["value"].to_numpy()
    )
    return fitted([model.intercept_, *model.coef_])


def train_duckdb(events: str, folder: Path) -> Answer:
    import duckdb
    import numpy as np
    from sklearn.linear_model import LinearRegression

    query = f"select items, hour(time) as hour, value from '{events}'"
    rows = duckdb.sql(query).fetchnumpy()
    model = LinearRegression().fit(np.column_stack([rows["items"], rows["hour"]]), rows["value"])
    return fitted([model.intercept_, *model.coef_])
