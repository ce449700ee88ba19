"""The gateway engine on a real server: settings, two users, and how clusters end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cloudpickle
import dask.config
import pytest
from contract import slow_square, thresholds
from distributed import wait
from services import until
from services_gateway import SMALL, TOLD, Server, gateway, nothing_left, surroundings

import hyperplane
from hyperplane import MemoryPolicy
from hyperplane.clusters import records
from hyperplane.clusters.dask.gateway.engine import GatewayEngine
from hyperplane.spec.settings import GatewaySettings

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["gateway", "nothing_left", "surroundings"]  # fixtures

ONE = {**SMALL, "nprocs": 1}


def start(**options: Any) -> Any:
    return hyperplane.start(hyperplane.plan_cluster(**{"engine": "gateway", **ONE, **options}))


# Workers cannot import the function below from the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def terminate(dask_worker: Any) -> Any:
    return dask_worker.memory_manager.memory_terminate_fraction


# Workers cannot import the functions below from the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_settings_reach_scheduler_and_workers() -> None:
    def of_scheduler(dask_scheduler: Any) -> tuple[float, float]:
        return dask_scheduler.worker_ttl, dask_scheduler.no_workers_timeout

    def of_worker() -> tuple[Any, Any]:
        interval = dask.config.get("distributed.worker.profile.interval")
        return interval, os.environ.get("MALLOC_TRIM_THRESHOLD_")

    for plan_options in (TOLD, {**TOLD, "environment": None}):
        options = {"plan_options": plan_options, "worker_ttl": "45s"}
        client, cluster = start(engine_options=options)
        with cluster, client:
            assert client.run_on_scheduler(of_scheduler) == (45, 300)
            assert list(client.run(of_worker).values()) == [("100ms", "67108864")]


def test_a_policy_without_pause_and_terminate_reaches_the_workers(gateway: Server) -> None:
    del gateway
    client, cluster = start(memory=MemoryPolicy(pause=False, terminate=False))
    with cluster, client:
        assert [one["pause"] for one in client.run(thresholds).values()] == [False]
        assert list(client.run(terminate, nanny=True).values()) == [False]


def test_two_users_on_other_machines(
    gateway: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, ben = (GatewaySettings(**gateway.settings(user)) for user in ("ada", "ben"))
    client, cluster = start(name="of-ada")
    theirs = start(name="of-ben", engine_options=gateway.settings("ben"))
    with cluster, client, theirs.cluster, theirs.client:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(tempfile, "tempdir", str(tmp_path))  # no records of this machine
            for user, own, other in (
                (ada, cluster, theirs.cluster),
                (ben, theirs.cluster, cluster),
            ):
                found = GatewayEngine().connect(own.name, user)
                assert found.client.submit(sum, [1, 2]).result() == 3
                found.client.close()
                found.cluster.close(shutdown=False)
                with pytest.raises(
                    hyperplane.EngineError, match=f"of this user; running: {own.name}"
                ):
                    GatewayEngine().connect(other.name, user)
            # By the settings; without a record only the gateway's name is known.
            with pytest.raises(
                hyperplane.EngineError, match="runs no cluster 'of-ada' of this user; running"
            ):
                hyperplane.get_cluster("of-ada", "gateway")
            hyperplane.get_cluster(cluster.name, "gateway").client.shutdown()
        until(lambda: cluster.status.name == "closed")
        assert theirs.client.submit(sum, [1, 2]).result() == 3


def test_a_cluster_is_found_by_both_names_and_survives_the_close_of_a_handle(
    gateway: Server,
) -> None:
    client, cluster = start(name="shared")
    with cluster, client:
        for name in ("shared", cluster.name):
            found = GatewayEngine().connect(name, GatewaySettings(**gateway.settings()))
            assert found.client.submit(sum, [1, 2]).result() == 3
            found.client.close()
            found.cluster.close(shutdown=False)
        with pytest.raises(hyperplane.StartFailed, match="is already running"):
            start(name="shared")
        program = (
            "import hyperplane, sys\n"
            "client, cluster = hyperplane.get_cluster(*sys.argv[1:])\n"
            "assert client.submit(sum, [1, 2]).result() == 3\n"
        )
        for arguments in (["shared", "gateway"], ["shared"], [cluster.name]):
            subprocess.run([sys.executable, "-c", program, *arguments], check=True, timeout=120)
        assert client.submit(sum, [3, 4]).result() == 7


def test_an_owner_that_is_killed_leaves_a_cluster_that_ends_by_itself(gateway: Server) -> None:
    options = {"engine": "gateway", **ONE, "idle_timeout": 15, "engine_options": gateway.settings()}
    program = (
        "import hyperplane, os, signal\n"
        "if __name__ == '__main__':\n"
        f"    client, cluster = hyperplane.start(hyperplane.plan_cluster(**{options!r}))\n"
        "    held = client.submit(sum, [1, 2])\n"
        "    held.result()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=240)
    assert done.returncode == -signal.SIGKILL
    assert gateway.processes()
    until(lambda: not gateway.processes())


def test_a_cluster_ends_with_its_owner_and_a_stop_reaches_the_owner(
    gateway: Server,
) -> None:
    options = {"engine": "gateway", **ONE, "engine_options": gateway.settings()}
    program = (
        "import hyperplane\n"
        "if __name__ == '__main__':\n"
        f"    client, cluster = hyperplane.start(hyperplane.plan_cluster(**{options!r}))\n"
        "    assert client.submit(sum, [1, 2]).result() == 3\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
    until(lambda: not gateway.processes())
    client, cluster = start(name="stopped")
    with cluster, client:
        command = Path(sys.executable).with_name("hyperplane")
        subprocess.run([command, "cluster", "stop", "stopped"], check=True, timeout=120)
        until(lambda: cluster.status.name == "closed")
        assert client.status == "closed"


def test_idle_timeout_spares_held_results_and_the_owner_learns_of_the_end() -> None:
    client, cluster = start(idle_timeout=10)
    with cluster, client:
        held = client.submit(sum, [1, 2])
        wait(held)
        time.sleep(14)
        assert held.result() == 3
        assert cluster.status.name == "running"
        del held
        until(lambda: cluster.status.name == "closed")
        assert client.status == "closed"


def test_scaled_and_adapted() -> None:
    client, cluster = start()
    with cluster, client:
        with pytest.warns(UserWarning, match="Scaling to 4 instead"):
            cluster.scale(99)
        cluster.adapt(minimum=1, maximum=2)
        squares = client.map(slow_square(), range(100), pure=False)
        assert sum(client.gather(squares)) == sum(n * n for n in range(100))
        del squares
        until(lambda: len(client.nthreads()) == 1, 90)


def test_killed_process_and_nanny_are_replaced() -> None:
    client, cluster = start()
    with cluster, client:
        [nanny] = client.run(os.getpid, nanny=True).values()
        futures = client.map(slow_square(), range(60), pure=False)
        os.kill(nanny, signal.SIGKILL)
        assert client.gather(futures) == [n * n for n in range(60)]
        assert nanny not in client.run(os.getpid, nanny=True).values()


def test_no_password_in_anything_that_is_written(gateway: Server) -> None:
    client, cluster = start()
    with cluster, client:
        folder = records.private_folder()
        texts = [file.read_text() for file in folder.glob("*.json")]
        texts += [repr(cluster), repr(cluster.gateway), repr(cluster.gateway.auth), repr(client)]
        texts += [str(log) for log in cluster.get_logs().values()]
        texts += [file.read_text() for file in Path(gateway.state).glob("clusters/*/logs/*")]
        assert len(texts) > 6
        assert not any(gateway.passwords()["ada"] in text for text in texts)
