"""Jobs on a Slurm cluster while workers, connections, clocks or the owner fail."""

from __future__ import annotations

from pathlib import Path

import chaos_jobs
import pytest
from chaos_runs import EngineSetup, run_schedules
from chaos_scale import chaos_scaled
from chaos_schedule import draw_schedule, requested_seeds
from services import Slot, until
from services_slurm import SMALL, queue, service

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["service"]  # a fixture

#: A killed worker, a cut connection, and a killed owner.
SEEDS = chaos_scaled([15, 23, 14], range(30))


@pytest.mark.timeout(chaos_scaled(900, 3600))
def test_each_run_ends_as_promised(service: Slot, tmp_path: Path) -> None:
    shared, node = tmp_path / "shared", tmp_path / "node"
    node.mkdir()
    setup = EngineSetup(
        plan={"engine": "slurm", **SMALL, "engine_options": {"worker_ttl": "8s"}},
        settings={
            "hyperplane.engines.slurm.interface": "lo",
            "hyperplane.engines.slurm.shared_folder": str(shared),
            # The node is this machine; another would have its own temporary directory.
            "hyperplane.engines.slurm.local_directory": str(node),
        },
        scratch_space=True,
    )
    jobs = list(chaos_jobs.JOBS)
    schedules = [draw_schedule(seed, jobs, "slurm") for seed in requested_seeds(SEEDS)]
    outcomes = []
    for outcome in run_schedules(schedules, setup, limit=180):
        outcomes.append(outcome)
        if outcome.outcome == "owner killed":
            until(lambda: not queue(), 300)
    # A killed owner leaves an empty folder of its machine; the next start removes it.
    until(lambda: not queue() and not any(path.is_file() for path in shared.rglob("*")), 300)
    # The lock of a worker that was ended stays until Dask starts another one in the same folder.
    until(lambda: not any(path.is_dir() for path in (node / "dask-scratch-space").iterdir()))
    broken = [str(outcome) for outcome in outcomes if not outcome.is_allowed]
    assert not broken, "\n\n".join(broken)
    # A job may end before its fault.
    missed = [str(outcome) for outcome in outcomes if not outcome.happened]
    assert len(missed) <= len(outcomes) // 10, "\n\n".join(missed)
