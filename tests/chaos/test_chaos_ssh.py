"""Jobs on hosts of the ssh engine while processes, connections and clocks fail."""

from __future__ import annotations

import chaos_jobs
import pytest
from chaos_runs import EngineSetup, run_schedules
from chaos_scale import chaos_scaled
from chaos_schedule import draw_schedule, requested_seeds
from services import until
from services_ssh import SMALL, HostNetwork, network

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network"]  # a fixture

#: A killed scheduler, a killed owner, a killed worker, and a cut connection.
SEEDS = chaos_scaled([12, 14, 15, 23], range(30))


@pytest.mark.timeout(chaos_scaled(900, 3600))
def test_each_run_ends_as_promised(network: HostNetwork) -> None:
    settings = {f"hyperplane.engines.ssh.{key}": value for key, value in network.settings().items()}
    setup = EngineSetup(
        plan={"engine": "ssh", **SMALL, "engine_options": {"worker_ttl": "8s"}},
        settings=settings,
        # The address of this machine in the network of the hosts.
        host=network.address(1).rpartition(".")[0] + ".1",
        remote=True,
    )
    schedules = [
        draw_schedule(seed, list(chaos_jobs.JOBS), "ssh") for seed in requested_seeds(SEEDS)
    ]
    outcomes = []
    for outcome in run_schedules(schedules, setup, limit=180):
        outcomes.append(outcome)
        if outcome.outcome == "owner killed":  # otherwise the next run may have begun
            until(lambda: not network.processes(), 120)
    # Processes on hosts end with the connection of their owner.
    until(lambda: not network.processes(), 120)
    broken = [str(outcome) for outcome in outcomes if not outcome.is_allowed]
    assert not broken, "\n\n".join(broken)
