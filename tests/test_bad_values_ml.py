"""Searches, estimators and shards with bad values: a prompt error of ours or a correct result."""

from __future__ import annotations

import pytest
from bad_calls import ML, SHARDS
from bad_estimator_calls import ESTIMATORS
from bad_values import check, good_files, nothing_starts
from scale import scaled

__all__ = ["good_files", "nothing_starts"]


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("name", [*ML, *ESTIMATORS, *SHARDS])
def test_bad_values_raise_hyperplane_errors(name: str) -> None:
    check(name, {**ML, **ESTIMATORS, **SHARDS}[name], scaled(10, 150))
