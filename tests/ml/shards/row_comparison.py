"""Comparison of DataFrames whose rows may have another order."""

from __future__ import annotations

import pandas as pd


def same_rows(result: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Fail if the rows differ in more than their order and types."""
    result, expected = (
        each.sort_values(list(each.columns)).reset_index(drop=True) for each in (result, expected)
    )
    pd.testing.assert_frame_equal(result, expected, check_dtype=False)
