"""Settings, environment variables and keys of processes on other machines."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from typing import Any

import dask.config
import pytest
from distributed.comm import connect, listen
from distributed.security import Security

import hyperplane
from hyperplane.clusters.dask import guarded_cluster, remote_process
from hyperplane.spec.settings import RemoteSettings

SETTINGS = RemoteSettings(lost_worker_timeout="7s", no_workers_timeout="8s", worker_ttl="9s")


def plan(**options: Any) -> hyperplane.ClusterPlan:
    small = {"num_workers": 1, "nprocs": 1, "nthreads": 3, "ram_gb_per_proc": 0.5}
    return hyperplane.plan_cluster(**{**small, "engine": "local", "local_fit": "exact", **options})


class TestSettings:
    def test_have_the_policy_timeouts_and_tuning(self) -> None:
        memory = hyperplane.MemoryPolicy(target=0.5, spill=0.6, pause=0.7, terminate=False)
        found = remote_process.server_settings(plan(memory=memory), SETTINGS)
        assert found["distributed.worker.memory.target"] == 0.5
        assert found["distributed.worker.memory.terminate"] is False
        assert found["distributed.scheduler.no-workers-timeout"] == "8s"
        assert found["distributed.scheduler.worker-ttl"] == "9s"
        assert found["distributed.worker.profile.interval"] == "100ms"
        assert found["dataframe.shuffle.method"] == "tasks"  # tasks may be clients themselves

    def test_what_the_user_has_set_stays_out(self) -> None:
        chosen = {"distributed.scheduler.worker-ttl": "1 hour", "dataframe.shuffle.method": "disk"}
        with dask.config.set(chosen):
            found = remote_process.server_settings(plan(), SETTINGS)
        assert not chosen.keys() & found.keys()
        assert "distributed.scheduler.no-workers-timeout" in found

    def test_the_policy_is_that_of_the_plan(self) -> None:
        of_plan = plan(memory=hyperplane.MemoryPolicy(pause=0.85))
        with dask.config.set({"distributed.worker.memory.pause": 0.9}):
            found = remote_process.server_settings(of_plan, SETTINGS)
        assert found["distributed.worker.memory.pause"] == 0.85

    def test_of_the_cluster_object(self) -> None:
        key = "distributed.deploy.lost-worker-timeout"
        assert guarded_cluster.cluster_settings(SETTINGS) == {key: "7s"}
        with dask.config.set({key: "1s"}):
            assert guarded_cluster.cluster_settings(SETTINGS) == {}

    def test_variables_of_workers_are_texts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
        found = remote_process.worker_variables(plan())
        assert found["POLARS_MAX_THREADS"] == "3"
        assert all(isinstance(value, str) for value in found.values())
        monkeypatch.setenv("POLARS_MAX_THREADS", "9")
        assert "POLARS_MAX_THREADS" not in remote_process.worker_variables(plan())

    def test_variables_of_linux_whatever_this_machine_is(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "platform", "darwin")
        assert "MALLOC_TRIM_THRESHOLD_" in remote_process.worker_variables(plan())


@pytest.mark.process
def test_dask_reads_back_from_variables_what_was_written() -> None:
    settings = {
        **remote_process.server_settings(plan(), SETTINGS),
        "distributed.worker.memory.terminate": False,
        "distributed.worker.memory.max-spill": None,
        "distributed.worker.preload": ["a.b", "c"],
        "distributed.scheduler.worker-ttl": 12.5,
    }
    variables = remote_process.as_variables(settings)
    assert all(re.fullmatch("[A-Z_][A-Z0-9_]*", name) for name in variables), (
        "a shell takes no others"
    )
    program = (
        "import dask.config, distributed, sys\n"
        f"print([dask.config.get(key) for key in {list(settings)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == repr(list(settings.values()))


class TestKeys:
    def test_no_tls_is_no_keys(self) -> None:
        assert remote_process.key_pair(Security()) == {}
        assert not remote_process.make_security({}).require_encryption

    def test_a_key_pair_is_text_and_can_be_read_back(self) -> None:
        pair = remote_process.key_pair(Security.temporary())
        assert set(pair) == {"ca_file", "cert", "key"}
        assert "BEGIN CERTIFICATE" in pair["cert"]
        assert "PRIVATE KEY" in pair["key"]
        assert remote_process.key_pair(remote_process.make_security(pair)) == pair

    def test_another_handle_connects_and_a_stranger_does_not(self) -> None:
        """Over a real connection: the pair must work for every role."""
        pair = remote_process.key_pair(Security.temporary())
        assert asyncio.run(echoed(pair, remote_process.make_security(pair))) == "hello"
        with pytest.raises(OSError, match=r"TLS|certificate|SSL|closed"):
            asyncio.run(echoed(pair, Security.temporary()))

    def test_dask_creates_the_same_security_from_the_settings(self) -> None:
        pair = remote_process.key_pair(Security.temporary())
        with dask.config.set(remote_process.as_settings(pair)):
            security = Security()
        assert security.require_encryption
        for role in ("client", "scheduler", "worker"):
            assert pair.items() <= security.get_tls_config_for_role(role).items()
        assert asyncio.run(echoed(pair, security)) == "hello"

    def test_a_security_object_does_not_show_its_keys(self) -> None:
        pair = remote_process.key_pair(Security.temporary())
        assert pair["key"] not in repr(remote_process.make_security(pair))


async def echoed(pair: dict[str, str], client: Security) -> object:
    """Return the answer of a server with the key pair to a client."""

    async def answer(comm: Any) -> None:
        await comm.write(await comm.read())
        await comm.close()

    server = remote_process.make_security(pair).get_listen_args("scheduler")
    async with listen("tls://127.0.0.1:0", answer, **server) as listener:
        comm = await connect(
            listener.contact_address, timeout=60, **client.get_connection_args("client")
        )
        await comm.write("hello")
        try:
            return await comm.read()
        finally:
            await comm.close()
