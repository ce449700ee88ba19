"""Budgets as numbers and as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hyperplane.errors import RequestError
from hyperplane.spec.budget import Budget
from hyperplane.spec.request import ClusterRequest


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (12, Budget(12)),
        (0.5, Budget(0.5)),
        (np.float32(2), Budget(2)),
        ("12", Budget(12)),
        ("12 core-hours", Budget(12)),
        ("1 core-hour", Budget(1)),
        (" 1.5 Core Hours ", Budget(1.5)),
        *((f"2{text}", Budget(2)) for text in ("corehours", " CPU-hours", " core_hrs", "core-h")),
        ("5 USD", Budget(5, "USD")),
        ("5.5eur", Budget(5.5, "EUR")),
        (Budget(3), Budget(3)),
        (None, None),
    ],
)
def test_budgets_that_are_read(given: Any, expected: Budget | None) -> None:
    assert ClusterRequest(budget=given).budget == expected


@pytest.mark.parametrize(
    "given",
    [
        *(0, -1, True, "", "much", "5 hours", "5 US Dollars", "1e3 USD", "-5 USD", b"5", [5]),
        *("12 hrs", "5 min", "30sec", "1 day", "2 gpu", "8 CPU", "5 hour"),
        *(float("nan"), float("inf"), "5 core-hours a day", "\u0665", "1_0", 10**400),
    ],
)
def test_other_budgets_are_refused(given: Any) -> None:
    with pytest.raises(RequestError, match="core-hours as a number above 0") as caught:
        ClusterRequest(budget=given)
    assert [fault.where for fault in caught.value.faults] == ["budget"]
