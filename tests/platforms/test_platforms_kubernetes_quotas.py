"""Resources of pods against the quotas of a namespace."""

from __future__ import annotations

from typing import Any

import pytest

from hyperplane.platforms.kubernetes.quotas import find_shortages, parse_quantity, sum_resources

POD: dict[str, Any] = {
    "containers": [
        {"resources": {"requests": {"cpu": "500m", "memory": "1073741824"}, "limits": {"cpu": "1"}}}
    ]
}
NEEDED = sum_resources([(4, POD)])


def _quota(hard: dict[str, str], used: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "team"}, "status": {"hard": hard, "used": used}}


def test_resources_of_all_pods_are_added() -> None:
    assert NEEDED["pods"] == 4
    assert (NEEDED["requests.cpu"], NEEDED["cpu"], NEEDED["limits.cpu"]) == (2000, 2000, 4000)
    assert NEEDED["requests.memory"] == 4 << 30


@pytest.mark.parametrize(
    ("hard", "used", "expected"),
    [
        ({"requests.memory": "4Gi"}, {}, []),
        ({"requests.memory": "3Gi"}, {}, [("requests.memory", "4096Mi", True)]),
        ({"memory": "8Gi"}, {"memory": "5Gi"}, [("memory", "4096Mi", False)]),
        ({"limits.cpu": "3500m"}, {}, [("limits.cpu", "4000m", True)]),
        ({"pods": "3"}, {"pods": "0"}, [("pods", "4", True)]),
        ({"services": "0", "requests.nvidia.com/gpu": "0"}, {}, []),
        ({"requests.memory": "a lot"}, {}, []),
    ],
)
def test_what_a_quota_has_left(hard: Any, used: Any, expected: Any) -> None:
    found = find_shortages([_quota(hard, used)], NEEDED)
    assert [(short.resource, short.needed, short.never) for short in found] == expected


def test_disks_of_pods_are_added_like_their_memory() -> None:
    resources = {"requests": {"ephemeral-storage": "10Gi"}, "claims": [{"name": "gpu"}]}
    needed = sum_resources([(2, {"containers": [{"resources": resources}, {"resources": None}]})])
    [short] = find_shortages([_quota({"requests.ephemeral-storage": "15Gi"}, {})], needed)
    assert (short.needed, short.never) == ("20480Mi", True)


@pytest.mark.parametrize(
    "spec",
    [
        {"scopes": ["BestEffort"]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}},
    ],
)
def test_a_quota_of_some_pods_only_is_left_out(spec: dict[str, Any]) -> None:
    quota = {**_quota({"pods": "0"}, {}), "spec": {"hard": {"pods": "0"}, **spec}}
    assert list(find_shortages([quota], NEEDED)) == []


def test_quantities() -> None:
    assert parse_quantity("cpu", "0") == 0
    assert parse_quantity("memory", "1G") == 10**9
    assert parse_quantity("memory", "128974848000m") == 128974848
    assert parse_quantity("memory", "1E") == 10**18
    assert parse_quantity("memory", "12E3") == 12_000
    assert parse_quantity("cpu", 0.1) == 100
    assert parse_quantity("nvidia.com/gpu", "1") == 1
    for wrong in ("", "2 Gi", "GB", "1GB", "-"):
        with pytest.raises(ValueError, match="no quantity"):
            parse_quantity("memory", wrong)
