"""Whether two results of the job are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperplane.demo.job import Results
from hyperplane.errors import HyperplaneError
from hyperplane.units import plural

if TYPE_CHECKING:
    import pandas as pd

#: Sums of floats depend on the order of their terms, so means agree to this part of their size.
RELATIVE = 1e-9
ABSOLUTE = 1e-9


class Mismatch(HyperplaneError):
    """The cluster and pandas disagree; the message says where."""


def compare(found: Results, expected: Results) -> tuple[str, ...]:
    """Compare what the cluster found with what pandas says.

    Parameters
    ----------
    found, expected : Results
        Of the cluster, and of pandas.

    Returns
    -------
    tuple of str
        What was compared, one line each.

    Raises
    ------
    Mismatch
        With every table that differs and its first difference.
    """
    differences = [
        difference
        for name in Results._fields
        if (difference := _difference(name, getattr(found, name), getattr(expected, name)))
    ]
    if differences:
        raise Mismatch("the cluster and pandas disagree:\n" + "\n".join(differences))
    days, carriers = found.departures.shape
    return (
        f"{plural(len(found.longest), 'longest flight')}: every row and column equal",
        f"{days} days x {carriers} carriers of departures: counts equal",
        f"{days} days x {carriers} carriers of mean delay: equal within {RELATIVE:g}",
        f"{plural(len(found.hours), 'scheduled hour')}: counts equal",
    )


def _difference(name: str, found: pd.DataFrame, expected: pd.DataFrame) -> str:
    """What differs first between two tables; empty when nothing does."""
    for what, ours, theirs in (
        ("rows", found.index, expected.index),
        ("columns", found.columns, expected.columns),
    ):
        if list(ours) != list(theirs):
            return f"  {name}: {what} differ, {len(ours)} on the cluster, {len(theirs)} in pandas"
    same = _close if name == "delays" else _equal
    for column in found.columns:
        unequal = ~same(found[column], expected[column])
        if unequal.any():
            row = unequal.idxmax()
            return (
                f"  {name}: {int(unequal.sum())} of {len(unequal)} differ in {column}, first at "
                f"{row}: {found.at[row, column]!s} on the cluster, {expected.at[row, column]!s} in "
                "pandas"
            )
    return ""


def _equal(ours: pd.Series, theirs: pd.Series) -> pd.Series:
    return (ours.isna() & theirs.isna()) | (ours == theirs).fillna(False)


def _close(ours: pd.Series, theirs: pd.Series) -> pd.Series:
    return _equal(ours, theirs) | ((ours - theirs).abs() <= ABSOLUTE + RELATIVE * theirs.abs())
