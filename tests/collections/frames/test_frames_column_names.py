"""Columns may have the names that libraries give to their own results and helpers to theirs."""

from __future__ import annotations

from collections.abc import Callable

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scale import scaled

from hyperplane.dataframe import (
    drop_duplicates,
    group_agg,
    join,
    join_asof,
    sort_values,
    top_n_per_group,
    value_counts,
    window_agg,
    window_counts,
)

#: Names of columns that Polars, Arrow and pandas make, or that helpers use in intermediate results.
NAMES = ["len", "count", "counts", "literal", "index", "row_nr", "value", "values", "key", "hash"]
NAMES += ["row", "size", "n", "at", "proportion", "level_0", "variable", "struct", "sum", "by"]
NAMES += ["left", "right", "other", "group", "position", "_merge", "x_right", "number", "partition"]
#: A helper, of a data frame with the columns k (keys), v (numbers) and t (times).
HELPERS: dict[str, Callable[[dd.DataFrame, str, str, str], dd.DataFrame]] = {
    "drop_duplicates": lambda df, k, v, t: drop_duplicates(df, subset=[k, v]),
    "group_agg": lambda df, k, v, t: group_agg(df, k, {v: ["sum", "nunique", "first"]}),
    "group_agg of all rows": lambda df, k, v, t: group_agg(df, [k, v], {t: "count"}),
    "join": lambda df, k, v, t: join(df, df[[k, v]].drop_duplicates(), on=[k, v]),
    "semi join": lambda df, k, v, t: join(df, df[df[v] > 3][[v]], on=v, how="semi"),
    "join_asof": lambda df, k, v, t: join_asof(df[[k, t]], df[[k, v, t]], on=t, by=k),
    "sort_values": lambda df, k, v, t: sort_values(df, [v, k, t]),
    "sort_values descending": lambda df, k, v, t: sort_values(df, k, ascending=False),
    "top_n_per_group": lambda df, k, v, t: top_n_per_group(df, k, v, 2),
    "value_counts": lambda df, k, v, t: value_counts(df, [k, v]).to_frame("of"),
    "window_agg": lambda df, k, v, t: window_agg(df, t, "1D", {v: "sum"}, by=k),
    "window_counts": lambda df, k, v, t: window_counts(df, t, "1D", k),
}


def make_frame(k: str, v: str, t: str) -> dd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            k: rng.integers(0, 4, 60),
            v: rng.integers(0, 9, 60).astype(float),
            t: pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, 60), unit="h"),
        }
    )
    return dd.from_pandas(frame.sort_values(t), npartitions=3)


def list_rows(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    if not isinstance(frame.index, pd.RangeIndex) and frame.index.name is not None:
        frame = frame.set_axis([f"column {number}" for number in range(frame.shape[1])], axis=1)
        frame = frame.reset_index()
    return sorted(tuple(map(str, row)) for row in frame.itertuples(index=False, name=None))


@pytest.mark.parametrize("helper", HELPERS)
def test_results_do_not_depend_on_the_names_of_columns(helper: str) -> None:
    call = HELPERS[helper]
    with dask.config.set(scheduler="sync"):
        want = list_rows(call(make_frame("ka", "va", "ta"), "ka", "va", "ta").compute())
        for number in range(0, len(NAMES), scaled(3, 1)):  # at small scale each name once
            names = [NAMES[(number + shift) % len(NAMES)] for shift in range(3)]
            assert list_rows(call(make_frame(*names), *names).compute()) == want, names
