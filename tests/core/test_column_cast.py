"""Casts of columns leave the given column unchanged, whatever pandas does."""

from __future__ import annotations

import pandas as pd
import pytest

from hyperplane.core.column_cast import cast_column


@pytest.mark.parametrize("target", ["timestamp[us][pyarrow]", "timestamp[ns, tz=UTC][pyarrow]"])
@pytest.mark.parametrize("source", ["datetime64[s]", "datetime64[us]", "datetime64[us, UTC]"])
def test_missing_times_stay_missing_in_the_given_and_the_cast_column(source, target):
    times = pd.Series(pd.to_datetime([None, "2024-01-01"], utc="UTC" in source).astype(source))
    cast = cast_column(times, target)
    assert cast.dtype == target
    assert cast.isna().to_list() == times.isna().to_list() == [True, False]


def test_other_columns_are_cast_as_pandas_does():
    whole = pd.Series([1, None], dtype="Int64")
    pd.testing.assert_series_equal(cast_column(whole, "Float64"), whole.astype("Float64"))
    assert cast_column(pd.Series(["a"]), "category").dtype == "category"
