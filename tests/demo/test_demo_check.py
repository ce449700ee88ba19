"""Differences between the cluster and pandas are found in every table."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from hyperplane.demo import job
from hyperplane.demo.check import ResultMismatch, compare


@pytest.fixture(scope="module")
def right(some: pd.DataFrame) -> job.Results:
    return job.results_in_pandas(some)


def planted(
    results: job.Results, table: str, change: Callable[[pd.DataFrame], object]
) -> job.Results:
    changed = getattr(results, table).copy()
    replacement = change(changed)
    return results._replace(**{table: changed if replacement is None else replacement})


def test_equal_results_return_a_line_for_each_table(right: job.Results) -> None:
    days, carriers = right.departures.shape
    assert compare(right, right) == (
        "30 longest flights: every row and column equal",
        f"{days} days x {carriers} carriers of departures: counts equal",
        f"{days} days x {carriers} carriers of mean delay: equal within 1e-09",
        f"{len(right.hours)} scheduled hours: counts equal",
    )


def off_by_a_millionth(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(air_time=table["air_time"] + 1e-6)


def put(row: int, column: int, value: object) -> Callable[[pd.DataFrame], None]:
    def change(table: pd.DataFrame) -> None:
        table.iloc[row, column] = value

    return change


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("longest", off_by_a_millionth, "30 of 30 differ in air_time"),
        ("longest", put(4, 9, "XXX"), "1 of 30 differ in dest, first at 4"),
        ("longest", lambda table: table[:29], "rows differ, 29 on the cluster, 30 in pandas"),
        ("longest", lambda table: table[["origin", "dest"]], "columns differ"),
        ("departures", put(7, 3, 99), "1 of 365 differ in B6, first at 2013-01-08"),
        ("delays", put(7, 3, float("nan")), "1 of 365 differ in B6, first at 2013-01-08"),
        ("delays", lambda table: table * (1 + 1e-6), "differ in 9E"),
        ("hours", put(2, 2, 999), "differ in late, first at 7: 999 on the cluster"),
    ],
)
def test_a_planted_difference_is_named(
    right: job.Results, table: str, change: Callable[[pd.DataFrame], object], message: str
) -> None:
    with pytest.raises(ResultMismatch, match=f"(?s){table}: .*") as caught:
        compare(planted(right, table, change), right)
    assert message in str(caught.value)


def test_every_table_that_differs_is_named(right: job.Results) -> None:
    wrong = planted(right, "hours", lambda t: t * 2)
    wrong = planted(wrong, "departures", lambda t: t + 1)
    with pytest.raises(ResultMismatch) as caught:
        compare(wrong, right)
    assert "hours: " in str(caught.value)
    assert "departures: " in str(caught.value)


def test_means_may_differ_by_rounding(right: job.Results) -> None:
    compare(planted(right, "delays", lambda t: t * (1 + 1e-12)), right)
