"""The engine without a usable API server, and when a cluster of it counts as idle."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status
from kubernetes_cases import plan

import hyperplane
from hyperplane.clusters.dask.kubernetes.cluster import HyperplaneKubeCluster
from hyperplane.clusters.dask.kubernetes.engine import KubernetesEngine
from hyperplane.spec.settings import KubernetesSettings


def test_no_configuration_of_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(hyperplane.StartFailed, match=r"no usable configuration.*KUBECONFIG"):
        KubernetesEngine().start(plan(timeout=120))
    with pytest.raises(hyperplane.StartFailed, match="no usable configuration"):
        KubernetesEngine().connect("flights", KubernetesSettings())


def test_no_server_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # kept open, so that no other program takes the port
        name = {"name": "n"}
        server = f"https://127.0.0.1:{silent.getsockname()[1]}"
        content = {
            "current-context": "n",
            "contexts": [{**name, "context": {"cluster": "n", "user": "n"}}],
            "clusters": [{**name, "cluster": {"server": server}}],
            "users": [{**name, "user": {"token": "t"}}],
        }
        (tmp_path / "config").write_text(json.dumps(content), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        with pytest.raises(hyperplane.EngineError, match="cannot be reached"):
            KubernetesEngine().start(plan(timeout=120))


def test_check_idle_of_the_scheduler_preload() -> None:
    asyncio.run(_idle())


async def _idle() -> None:
    from distributed import Client, Scheduler, Worker

    from hyperplane.clusters.dask.kubernetes.idle import dask_setup

    options: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    async with Scheduler(**options) as scheduler:
        dask_setup(scheduler)
        ask = scheduler.handlers["check_idle"]
        assert ask == scheduler.check_idle
        assert ask() is not None, "no worker and no client: the owner has died"
        async with Client(scheduler.address, asynchronous=True) as client:
            assert ask() is None, "its workers are on their way"
            async with Worker(scheduler.address, dashboard=False, **{"host": "127.0.0.1"}):
                ask()
                first = ask()
                assert first is not None
                future = client.submit(sum, [1, 2])
                assert await future == 3
                assert [ask(), ask(), ask()] == [None] * 3, "a client holds the result"
                future.release()
                while scheduler.tasks:
                    await asyncio.sleep(0.01)
                ask()
                again = ask()
                assert again is not None
                assert again > first
            while scheduler.workers:
                await asyncio.sleep(0.01)
            assert ask() is not None, "all workers left again"


def test_a_cluster_that_is_gone_is_reported_with_both_causes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise OSError

    async def is_gone() -> bool:
        return True

    async def nothing() -> None:
        pass

    endings: list[str] = []

    async def finish(reason: str) -> None:
        endings.append(reason)

    cluster: Any = SimpleNamespace(
        name="flights",
        status=Status.running,
        resource=SimpleNamespace(is_gone=is_gone),
        _refresh_info=fail,
        _finish_record=finish,
        _close_client=nothing,
        _detach=nothing,
    )
    asyncio.run(HyperplaneKubeCluster._poll(cluster))
    assert "flights was deleted after its idle timeout, when its lease expired or" in caplog.text
    assert endings == ["it was deleted"]
