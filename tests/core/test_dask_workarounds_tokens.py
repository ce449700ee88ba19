"""Different frames have different tokens."""

from __future__ import annotations

import subprocess
import sys

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from dask.base import tokenize

import hyperplane  # noqa: F401 - from here on, Dask's tokens tell them apart

ONE = pd.DataFrame({"a": [1, 2], "b": [5, 6], "c": [3.0, 4.0]})
#: The same values in different columns.
OTHERS = {
    "other columns": pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0], "c": [5, 6]}),
    "other order": ONE[["a", "c", "b"]].set_axis(ONE.columns, axis=1),
    "other names": ONE.set_axis(["a", "b", "d"], axis=1),
    "other rows": ONE.set_axis([1, 2], axis=0),
    "another type": ONE.astype({"a": "float64"}),
    "a nullable type": ONE.astype({"a": "Int64"}),
    "a sparse type": ONE.astype({"a": pd.SparseDtype("int64", 0)}),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_frames_of_equal_values_elsewhere_have_other_tokens(other):
    assert tokenize(ONE) == tokenize(ONE.copy())
    assert tokenize(ONE) != tokenize(other)
    with dask.config.set(scheduler="sync"):
        held = [dd.from_pandas(frame, npartitions=1) for frame in (ONE, other)]
        pd.testing.assert_frame_equal(held[0].compute(), ONE)
        pd.testing.assert_frame_equal(held[1].compute(), other)
        pd.testing.assert_frame_equal(held[1].persist().compute(), other)


def test_columns_of_one_name_have_other_tokens():
    one = pd.DataFrame([[1, 2.0], [3, 4.0]], columns=["a", "a"])
    assert tokenize(one) != tokenize(one.iloc[:, ::-1])


@pytest.mark.process
@pytest.mark.parametrize(
    "before",
    ["", "import pandas", "import dask.base, pandas; dask.base.tokenize(pandas.DataFrame())"],
)
@pytest.mark.parametrize("after", ["", "import dask.dataframe"])
def test_whatever_is_imported_first(before, after):
    program = f"""{before}
import hyperplane
{after}
import pandas as pd
from dask.base import tokenize
# The first lookup of such types has Dask register its own functions.
tokenize(pd.DataFrame({{"text": ["x"], "time": pd.to_datetime(["2026-01-01"], utc=True)}}))
one = pd.DataFrame({{"a": [1, 2], "b": [5, 6], "c": [3.0, 4.0]}})
print(tokenize(one) != tokenize(one[["a", "c", "b"]].set_axis(one.columns, axis=1)))
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "True\n"


@pytest.mark.parametrize("types", [("str", "string"), ("string", object), ("bool", "boolean")])
def test_equal_values_of_two_types_have_other_tokens(types):
    value = True if "bool" in types else "x"
    one, other = (pd.DataFrame({"a": pd.Series([value], dtype=dtype)}) for dtype in types)
    assert tokenize(one) != tokenize(other)
