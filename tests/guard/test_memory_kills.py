"""Computations that end workers for memory explain themselves, and the printed fix helps."""

from __future__ import annotations

import pytest
from memory_failures import CAUSES, KINDS, LIMIT_GB, compute, parse_fix, run_cluster
from scale import FULL

from hyperplane.errors import WorkerOutOfMemory

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: Cases of the small scale: each cause once, and each kind.
SMALL = (("one large task", "numpy"),)
OPERATIONS = {
    "one large task": {"allocate_large"},
    "several together": {"allocate_part"},
    "results held": {"combine"},
    "killed from outside": {"fill_memory"},
    # Both wait for the paused worker, and either may end first if it was restarted before.
    "spill disk full": {"build", "len"},
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        pytest.param(
            way,
            kind,
            marks=pytest.mark.skipif(
                not FULL and (way, kind) not in SMALL, reason="20 cases: at full scale"
            ),
        )
        for way in CAUSES
        for kind in KINDS
    ],
)
def test_a_worker_out_of_memory_explains_itself_and_its_fix_helps(way: str, kind: str) -> None:
    with run_cluster(way) as client, pytest.raises(WorkerOutOfMemory) as caught:
        compute(client, way, kind)
    error = caught.value
    assert error.cause == CAUSES[way]
    assert error.operation in OPERATIONS[way]
    assert error.limit == LIMIT_GB * 1e9
    assert 0.5 * error.limit < error.peak < 1.7 * error.limit  # growth between two samples
    assert error.attempts <= 4
    with run_cluster(way, **parse_fix(error.fix)) as client:
        compute(client, way, kind)
