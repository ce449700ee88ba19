"""Frames and helper functions of the tests of `explain`."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

from hyperplane.collections.frames.explain import explain

ROWS = 120


def users():
    """Return a small log of three columns in pandas."""
    rows = np.arange(ROWS)
    return pd.DataFrame(
        {"user": rows * 7 % 13, "spent": rows * 1.5, "kind": np.where(rows % 3, "buy", "look")}
    )


def log(parts=6):
    """Return the log in several partitions, with divisions of its row numbers."""
    return dd.from_pandas(users(), npartitions=parts)


def indexed(parts=4):
    """Return the log indexed by user, with known divisions."""
    return dd.from_pandas(users().set_index("user").sort_index(), npartitions=parts)


def named(parts=3):
    """Return a second frame of users, in several partitions, with known divisions."""
    frame = pd.DataFrame({"user": range(13), "name": [f"n{i}" for i in range(13)]})
    return dd.from_pandas(frame, npartitions=parts)


def first_row(group):
    """Return the row of a group with the smallest value."""
    return group.sort_values("spent").head(1)


def explain_lazily(*collections):
    """Return the explanation, with a scheduler that fails on any computation."""

    def refuse(*_, **__):
        raise AssertionError("explain computed")

    with dask.config.set(scheduler=refuse):
        return explain(*collections)


def find_only(kind, *collections):
    """Assert that there is exactly one finding, of this kind, and return it."""
    explanation = explain_lazily(*collections)
    assert explanation.kinds == (kind,), str(explanation)
    return explanation.findings[0]


def expect_no_finding(*collections):
    """Assert that there are no findings and no notes."""
    explanation = explain_lazily(*collections)
    assert explanation.kinds == (), str(explanation)
    assert explanation.notes == ()
    assert str(explanation).startswith("nothing expensive found: ")
