"""Frames that the tests of `explain` share."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

from hyperplane.collections.frames.explain import explain

ROWS = 120


def users():
    """Three columns of a small log, in pandas."""
    rows = np.arange(ROWS)
    return pd.DataFrame(
        {"user": rows * 7 % 13, "spent": rows * 1.5, "kind": np.where(rows % 3, "buy", "look")}
    )


def log(parts=6):
    """The log in several partitions, with known divisions of no use."""
    return dd.from_pandas(users(), npartitions=parts)


def indexed(parts=4):
    """The log by user, with known divisions."""
    return dd.from_pandas(users().set_index("user").sort_index(), npartitions=parts)


def named(parts=3):
    """A second frame by user, in several partitions and with known divisions."""
    frame = pd.DataFrame({"user": range(13), "name": [f"n{i}" for i in range(13)]})
    return dd.from_pandas(frame, npartitions=parts)


def whole(group):
    """A function of a group."""
    return group.sort_values("spent").head(1)


def asked(*collections):
    """The explanation, with a scheduler that refuses to compute anything."""

    def refuse(*_, **__):
        raise AssertionError("explain computed")

    with dask.config.set(scheduler=refuse):
        return explain(*collections)


def only(kind, *collections):
    """The one finding that there shall be."""
    found = asked(*collections)
    assert found.kinds == (kind,), str(found)
    return found.findings[0]


def nothing(*collections):
    """No finding, and no note that something could not be looked at."""
    found = asked(*collections)
    assert found.kinds == (), str(found)
    assert found.notes == ()
    assert str(found).startswith("nothing expensive found: ")
