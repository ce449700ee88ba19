"""Comparison of the results from the cluster and from pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperplane.core.errors import HyperplaneError
from hyperplane.core.units import plural
from hyperplane.demo.job import Results

if TYPE_CHECKING:
    import pandas as pd

#: Tolerance for means: sums of floats depend on the order of their terms.
RELATIVE = 1e-9
ABSOLUTE = 1e-9


class ResultMismatch(HyperplaneError, RuntimeError):
    """The results of the cluster differ from those of pandas."""


def compare(results: Results, expected: Results) -> tuple[str, ...]:
    """Compare the results of the cluster with those of pandas; return a line for each table.

    Raises
    ------
    ResultMismatch
        With every table that differs and its first difference.
    """
    differences = [
        difference
        for name in Results._fields
        if (difference := _difference(name, getattr(results, name), getattr(expected, name)))
    ]
    if differences:
        raise ResultMismatch("the cluster and pandas disagree:\n" + "\n".join(differences))
    days, carriers = results.departures.shape
    return (
        f"{plural(len(results.longest), 'longest flight')}: every row and column equal",
        f"{days} days x {carriers} carriers of departures: counts equal",
        f"{days} days x {carriers} carriers of mean delay: equal within {RELATIVE:g}",
        f"{plural(len(results.hours), 'scheduled hour')}: counts equal",
    )


def _difference(name: str, table: pd.DataFrame, expected: pd.DataFrame) -> str:
    """Return a text about the first difference of two tables; empty if they are equal."""
    for labels, ours, theirs in (
        ("rows", table.index, expected.index),
        ("columns", table.columns, expected.columns),
    ):
        if list(ours) != list(theirs):
            return f"  {name}: {labels} differ, {len(ours)} on the cluster, {len(theirs)} in pandas"
    compare_columns = _are_close if name == "delays" else _are_equal
    for column in table.columns:
        unequal = ~compare_columns(table[column], expected[column])
        if unequal.any():
            row = unequal.idxmax()
            return (
                f"  {name}: {int(unequal.sum())} of {len(unequal)} differ in {column}, first at "
                f"{row}: {table.at[row, column]!s} on the cluster, {expected.at[row, column]!s} in "
                "pandas"
            )
    return ""


def _are_equal(ours: pd.Series, theirs: pd.Series) -> pd.Series:
    return (ours.isna() & theirs.isna()) | (ours == theirs).fillna(False)


def _are_close(ours: pd.Series, theirs: pd.Series) -> pd.Series:
    return _are_equal(ours, theirs) | ((ours - theirs).abs() <= ABSOLUTE + RELATIVE * theirs.abs())
