"""Numbers of nodes of adaptive clusters."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from hyperplane.errors import RequestError
from hyperplane.spec.node_range import NodeRange, most_nodes
from hyperplane.spec.request import ClusterRequest


@pytest.mark.parametrize(
    "given",
    [(2, 10), [2, 10], ("2", "10"), "2-10", " 2 - 10 ", (np.int64(2), 10), NodeRange(2, 10)],
)
def test_pairs_are_the_least_and_the_most_nodes(given: Any) -> None:
    nodes = ClusterRequest(num_workers=given).num_workers
    assert (nodes, most_nodes(nodes), str(nodes)) == (2, 10, "(2, 10)")


@pytest.mark.parametrize("given", [3, "3", (3, 3), "3-3", np.int8(3)])
def test_one_number_is_no_range(given: Any) -> None:
    nodes = ClusterRequest(num_workers=given).num_workers
    assert (type(nodes), nodes, most_nodes(nodes)) == (int, 3, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 10), "each from 1 to 1,000,000"),
        ((0, -1), "each from 1 to 1,000,000"),
        ((2, 10, 12), "minimum and the maximum"),
        ((), "minimum and the maximum"),
        ((2, None), "each from 1"),
        ((2.5, 10), "each from 1"),
        ((True, 10), "each from 1"),
        ((1, 10**7), "each from 1"),
        ((10, 2), "smaller number first"),
        ("10-2", "smaller number first"),
        ("2-", "whole number, or the minimum and the maximum"),
        ("2--10", "whole number, or the minimum and the maximum"),
        ("2..10", "whole number, or the minimum and the maximum"),
        (2.5, "whole number, or the minimum and the maximum"),
        (None, "whole number, or the minimum and the maximum"),
        ({2, 10}, "whole number, or the minimum and the maximum"),
        (0, "at least 1"),
    ],
)
def test_other_values_are_refused_once(given: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        ClusterRequest(num_workers=given)
    assert [fault.where for fault in caught.value.faults] == ["num_workers"]


def test_a_request_keeps_its_range_when_it_is_copied_or_pickled() -> None:
    request = ClusterRequest(num_workers=(2, 10))
    for copy in (pickle.loads(pickle.dumps(request)), request.model_copy(update={"nprocs": 1})):
        assert most_nodes(copy.num_workers) == 10
