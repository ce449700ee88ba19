"""Jobs on local clusters while workers, connections, clocks, disks or the owner fail.

Each run ends with the right result, or with an error of this package or of Dask, in bounded time,
and leaves nothing behind. ``HYPERPLANE_CHAOS_SEED=7`` repeats the run of one seed.
"""

from __future__ import annotations

import chaos_jobs
import pytest
from chaos_faults import FaultInjector
from chaos_runs import run_schedules
from chaos_scale import chaos_scaled
from chaos_schedule import FAULTS, draw_schedule, requested_seeds

#: Groups of seeds that share a program. The small one has a killed worker, cut connections and a
#: killed owner during the same job, whose right result is therefore computed only once.
GROUPS = chaos_scaled([(320, 1948, 1418)], [range(first, first + 15) for first in range(0, 60, 15)])


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(chaos_scaled(600, 3600))
@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"seeds {seeds[0]} to {seeds[-1]}")
def test_each_run_ends_as_promised(seeds) -> None:
    schedules = [draw_schedule(seed, list(chaos_jobs.JOBS)) for seed in requested_seeds(seeds)]
    outcomes = list(run_schedules(schedules))
    assert len(outcomes) == len(schedules)
    broken = [str(outcome) for outcome in outcomes if not outcome.is_allowed]
    assert not broken, "\n\n".join(broken)


def test_a_seed_decides_everything_and_a_few_seeds_have_all_faults_and_jobs() -> None:
    jobs = list(chaos_jobs.JOBS)
    for engine, kinds in FAULTS.items():
        schedules = [draw_schedule(seed, jobs, engine) for seed in range(len(kinds))]
        assert schedules == [draw_schedule(seed, jobs, engine) for seed in range(len(kinds))]
        assert {schedule.faults[0].kind for schedule in schedules} == set(kinds)
        assert {draw_schedule(seed, jobs, engine).job for seed in range(200)} == set(jobs)


def test_every_kind_of_fault_can_be_injected() -> None:
    for kinds in FAULTS.values():
        for kind in kinds:
            assert hasattr(FaultInjector, "_" + kind.replace(" ", "_")), kind
