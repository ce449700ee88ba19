"""The lease of a cluster on a real gateway: who renews it, and that the gateway ends everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from services import until
from services_gateway import SMALL, Server, gateway, nothing_left, surroundings

from hyperplane.clusters import cluster_listing
from hyperplane.clusters.dask.gateway.engine import GatewayEngine
from hyperplane.clusters.remote_nodes import slurm_listing
from hyperplane.spec.settings import GatewaySettings

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["gateway", "nothing_left", "surroundings"]  # fixtures

ONE = {**SMALL, "nprocs": 1}
#: Seconds of the lease in these tests.
LEASE = 4


@contextmanager
def owner(gateway: Server, last: str = "", **options: Any) -> Iterator[tuple[Any, str]]:
    """A program that owns a cluster, and the gateway's name of the cluster."""
    engine_options = gateway.settings(lease_timeout=LEASE, **options)
    request = {"engine": "gateway", **ONE, "engine_options": engine_options}
    program = (
        "import hyperplane, time\n"
        "if __name__ == '__main__':\n"
        f"    client, cluster = hyperplane.start(hyperplane.plan_cluster(**{request!r}))\n"
        f"    {last}\n"
        "    print(cluster.name, flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        # The start prints other lines first.
        name = next(line for line in process.stdout if len(line) == 33)
        yield process, name.strip()
    finally:
        process.kill()
        process.communicate()


def test_a_cluster_ends_after_its_owner_was_killed_although_results_are_held(
    gateway: Server,
) -> None:
    hold = "held = client.submit(sum, [1, 2]); held.result()"
    with owner(gateway, hold) as (process, _):
        time.sleep(3 * LEASE)
        assert gateway.processes()
        process.kill()
        until(lambda: not gateway.processes())


def test_an_owner_that_is_stopped_or_has_closed_its_client_keeps_its_cluster(
    gateway: Server,
) -> None:
    with owner(gateway) as (process, _):
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(3 * LEASE)
        assert gateway.processes()
    until(lambda: not gateway.processes())
    with owner(gateway, "client.close()") as (process, _):
        time.sleep(3 * LEASE)
        assert gateway.processes()
    until(lambda: not gateway.processes())


def test_another_machine_lists_and_stops_the_cluster(
    gateway: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with owner(gateway) as (_, name):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # no records of this machine
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setattr(slurm_listing, "find_missing_commands", lambda: ["squeue"])
        [listed] = cluster_listing.list_clusters([]).clusters
        assert (listed.name, listed.engine, listed.status) == (name, "gateway", "running")
        assert listed.where == f"gateway {gateway.addresses()['address']}"
        cluster_listing.stop_listed(listed)
        until(lambda: not gateway.processes())
        assert cluster_listing.list_clusters([]) == ((), ())


def test_another_program_takes_over_and_keep_alive_needs_none(gateway: Server) -> None:
    settings = GatewaySettings(**gateway.settings())
    with owner(gateway) as (process, name):
        other = GatewayEngine().connect(name, settings)
        process.kill()
    time.sleep(3 * LEASE)
    assert other.client.submit(sum, [1, 2]).result() == 3
    other.client.close()
    other.cluster.close(shutdown=False)
    until(lambda: not gateway.processes())
    with owner(gateway, keep_alive=True) as (process, name):
        process.kill()
    time.sleep(3 * LEASE)
    last = GatewayEngine().connect(name, settings)
    assert last.client.submit(sum, [1, 2]).result() == 3
    last.client.close()
    last.cluster.close()
    until(lambda: not gateway.processes())
