"""Compare the values of CSV files with those of pandas."""

from __future__ import annotations

from typing import Any


def equal(result: Any, expected: Any) -> None:
    """Assert equal values; integers keep their digits where pandas has floats."""
    assert list(result) == list(expected)
    for name in expected:
        values, expected_values = result[name].astype(object), expected[name].astype(object)
        assert (values.isna() == expected_values.isna()).all(), name
        assert values.dropna().to_list() == expected_values.dropna().to_list(), name
