"""Requests to gateway servers that do not answer, and plugins for their schedulers."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
from dask_gateway import GatewayClusterError
from dask_gateway.client import GatewayServerError
from distributed.protocol.pickle import dumps
from yarl import URL

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask.gateway import plugins
from hyperplane.clusters.dask.gateway import server as gateway_server
from hyperplane.clusters.dask.gateway.engine import GatewayEngine
from hyperplane.guard.busy import BusyWorkerGuard
from hyperplane.spec.settings import GatewaySettings


def _plan(address: str, **options: Any) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(
        num_workers=1, nprocs=1, engine="gateway", engine_options={"address": address, **options}
    )


@contextmanager
def _port(listening: bool) -> Iterator[str]:
    """The address of a port at which nothing listens, or at which a server never answers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        if listening:
            held.listen()
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def test_a_server_that_is_not_there() -> None:
    with (
        _port(listening=False) as address,
        pytest.raises(hyperplane.StartFailed, match=rf"{address} cannot be reached: .*\.address"),
    ):
        hyperplane.start(_plan(address))
    assert records.read_all() == []


def test_a_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_server, "ANSWER_SECONDS", 0.3)
    with (
        _port(listening=True) as address,
        pytest.raises(hyperplane.StartFailed, match=r"did not answer within 0.3 s"),
    ):
        hyperplane.start(_plan(address))


def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_PASSWORD", raising=False)
    plan = _plan("http://127.0.0.1:1", auth="basic", password_variable="NO_SUCH_PASSWORD")
    with pytest.raises(hyperplane.StartFailed, match="variable 'NO_SUCH_PASSWORD' is not set"):
        hyperplane.start(plan)


@pytest.mark.parametrize("recorded", [True, False])
def test_attaching_without_the_variable_of_the_password(
    monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    monkeypatch.delenv("NO_SUCH_PASSWORD", raising=False)
    settings = GatewaySettings.model_validate(
        {"address": "http://a", "auth": "basic", "password_variable": "NO_SUCH_PASSWORD"}
    )
    record = records.ClusterRecord(
        "mine", "gateway", "gateway://a:8786/of-ada", "", os.getpid(), 1.0, 1, 1, 1.0,
        client=gateway_server.connection_settings(settings),
    )  # fmt: skip
    monkeypatch.setattr(records, "read_all", lambda: [record] if recorded else [])
    with pytest.raises(hyperplane.EngineError, match="'NO_SUCH_PASSWORD' is not set") as caught:
        GatewayEngine().connect("mine", settings)
    assert ("has started no cluster 'mine'" in str(caught.value)) == (not recorded)
    assert str(caught.value).count("engine gateway") == 1


@pytest.mark.parametrize(
    ("auth", "attribute", "name"),
    [("basic", "password", "BasicAuth"), ("jupyterhub", "api_token", "JupyterHubAuth")],
)
def test_the_secret_of_a_login_is_read_from_its_variable(
    monkeypatch: pytest.MonkeyPatch, auth: str, attribute: str, name: str
) -> None:
    monkeypatch.setenv("MY_SECRET", "{brace} hunter2")
    settings = GatewaySettings.model_validate(
        {
            "address": "http://a",
            "proxy_address": 8786,
            "auth": auth,
            "password_variable": "MY_SECRET",
        }
    )
    how = gateway_server.connection_settings(settings)
    assert "hunter2" not in repr(how)
    gateway = gateway_server.open_gateway(how)
    try:
        assert type(gateway.auth).__name__ == name
        assert getattr(gateway.auth, attribute) == "{brace} hunter2"
        assert gateway.proxy_address == "gateway://a:8786"
    finally:
        gateway.close()


def _response(status: int) -> aiohttp.ClientResponseError:
    request = aiohttp.RequestInfo(URL("http://a"), "GET", None, URL("http://a"))  # type: ignore[arg-type]
    return aiohttp.ClientResponseError(request, (), status=status, message="said so")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (_response(401), "refuses the login of user 'ada' (401)"),
        (_response(403), "forbids the request (403): said so"),
        (_response(502), "does not answer (502)"),
        (_response(418), "answered 418: said so"),
        (GatewayServerError("broken"), "reports: broken"),
        (GatewayClusterError("cluster x is not running"), "reports: cluster x is not running"),
        (ModuleNotFoundError("no", name="kerberos"), "not installed: kerberos"),
        (OSError("timed out"), "through the proxy gateway://a:80"),
    ],
)
def test_errors_are_explained(error: Exception, words: str) -> None:
    how = {"gateway.address": "http://a", "gateway.auth.kwargs": {"username": "ada"}}
    gateway = gateway_server.open_gateway(how)
    try:
        with (
            pytest.raises(hyperplane.EngineError) as caught,
            gateway_server.translate_errors(gateway),
        ):
            raise error
    finally:
        gateway.close()
    assert words in str(caught.value)
    assert caught.value.__cause__ is error


# The collection also finds what earlier tests of the process have left.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in.*Transport:pytest.PytestUnraisableExceptionWarning"
)
def test_a_client_of_the_server_that_is_collected_in_its_loop_stops_nothing() -> None:
    kept = gateway_server.open_gateway({"gateway.address": "http://a"})
    lost = gateway_server.SafeGateway("http://a", loop=kept.loop)

    async def collected() -> str:
        nonlocal lost
        lost.itself = lost
        del lost
        gc.collect()
        return "done"

    answer = asyncio.run_coroutine_threadsafe(collected(), kept.loop.asyncio_loop)
    assert answer.result(timeout=120) == "done"
    kept.close()
    kept.close()


PROGRAM = """
import pickle, sys
sys.modules["hyperplane"] = None
for plugin in pickle.load(sys.stdin.buffer):
    plugin = pickle.loads(plugin)
    print(type(plugin).__name__, getattr(plugin, "timeout", ""), plugin.name)
"""


@pytest.mark.process
def test_plugins_work_where_this_package_is_not_installed() -> None:
    sent: list[Any] = [
        plugins.SchedulerSettings({"distributed.scheduler.worker-ttl": "45s"}),
        plugins.NannySettings({"distributed.worker.memory.pause": 0.5}, {"A": "1"}),
        plugins.GatewayIdleGuard(7, begin_within=60),
        BusyWorkerGuard(),
    ]
    with plugins.pickled_by_value():
        pickled = pickle.dumps([dumps(plugin) for plugin in sent])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=pickled, capture_output=True, check=False
    )
    assert done.stdout.decode().splitlines() == [
        "SchedulerSettings  hyperplane-settings",
        "NannySettings  hyperplane-settings",
        "GatewayIdleGuard 7 hyperplane-idle-guard",
        "BusyWorkerGuard  hyperplane-busy-worker-guard",
    ], done.stderr.decode()
    assert len(dumps(sent[0])) < len(pickle.loads(pickled)[0])  # by name again
