"""Jobs of ``benchmarks.sort_and_save`` that exchange rows by key: distinct rows and many groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Columns of the distinct rows, and keys of the groups: about half of the rows differ in them.
KEYS = ["user", "session", "path"]


def duplicates_dask(source: str, target: str) -> None:
    """Write the distinct rows of three columns of text."""
    import dask.dataframe as dd

    rows = dd.read_parquet(source, columns=KEYS)
    rows.drop_duplicates(split_out=rows.npartitions).to_parquet(target)


def duplicates_hyperplane(source: str, target: str) -> None:
    """Write the distinct rows of three columns of text."""
    import hyperplane

    rows = hyperplane.dataframe.drop_duplicates(hyperplane.dataframe.read(source, KEYS))
    hyperplane.save(rows, target, format="parquet")


def duplicates_polars(source: str, target: str) -> None:
    """Write the distinct rows of three columns of text."""
    import polars as pl

    Path(target).mkdir()
    rows = pl.scan_parquet(source).select(KEYS).unique()
    rows.sink_parquet(Path(target, "0.parquet"), compression="snappy", engine="streaming")


def duplicates_duckdb(source: str, target: str) -> None:
    """Write the distinct rows of three columns of text."""
    import duckdb

    Path(target).mkdir()
    duckdb.sql(
        f"copy (select distinct {', '.join(KEYS)} from '{source}') to '{target}/0.parquet' "
        "(format parquet, compression snappy)"
    )


def groups_dask(source: str, target: str) -> None:
    """Write sums, counts and maxima of the groups of three columns of text."""
    import dask.dataframe as dd

    rows = dd.read_parquet(source, columns=[*KEYS, "bytes", "seconds"])
    groups = rows.groupby(KEYS).agg(
        {"bytes": ["sum", "count"], "seconds": "max"}, split_out=rows.npartitions
    )
    groups.columns = ["sum", "count", "slowest"]
    groups.reset_index().to_parquet(target)


def groups_hyperplane(source: str, target: str) -> None:
    """Write sums, counts and maxima of the groups of three columns of text."""
    import hyperplane

    rows = hyperplane.dataframe.read(source, [*KEYS, "bytes", "seconds"])
    groups = hyperplane.dataframe.group_agg(
        rows, KEYS, {"bytes": ["sum", "count"], "seconds": ["max"]}, split_out=None
    )
    groups.columns = ["sum", "count", "slowest"]
    hyperplane.save(groups.reset_index(), target, format="parquet")


def groups_polars(source: str, target: str) -> None:
    """Write sums, counts and maxima of the groups of three columns of text."""
    import polars as pl

    Path(target).mkdir()
    size = pl.col("bytes")
    groups = pl.scan_parquet(source).group_by(KEYS)
    rows = groups.agg(
        size.sum().alias("sum"), size.count().alias("count"), pl.max("seconds").alias("slowest")
    )
    rows.sink_parquet(Path(target, "0.parquet"), compression="snappy", engine="streaming")


def groups_duckdb(source: str, target: str) -> None:
    """Write sums, counts and maxima of the groups of three columns of text."""
    import duckdb

    Path(target).mkdir()
    keys = ", ".join(KEYS)
    duckdb.sql(
        f"copy (select {keys}, coalesce(sum(bytes), 0)::bigint as sum, count(bytes) as count, "
        f"max(seconds) as slowest from '{source}' group by {keys}) to '{target}/0.parquet' "
        "(format parquet, compression snappy)"
    )


def summarize_keys(job: str, target: str) -> list[Any]:
    """Return the number of written rows, and sums that depend on every value but not on order."""
    import duckdb

    fields = ["count(*)", f"sum(hash({', '.join(KEYS)}))"]
    if job == "groups":
        fields += ['sum("sum")', 'sum("count")', "sum(hash(slowest))"]
    (row,) = duckdb.sql(f"select {', '.join(fields)} from '{target}'").fetchall()
    return [str(value) for value in row]


JOBS: dict[str, dict[str, Callable[[str, str], None]]] = {
    "duplicates": {
        "dask": duplicates_dask,
        "hyperplane": duplicates_hyperplane,
        "polars": duplicates_polars,
        "duckdb": duplicates_duckdb,
    },
    "groups": {
        "dask": groups_dask,
        "hyperplane": groups_hyperplane,
        "polars": groups_polars,
        "duckdb": groups_duckdb,
    },
}
