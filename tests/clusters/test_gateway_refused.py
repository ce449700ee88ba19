"""Errors of the gateway engine when a real server refuses a request, fails or ends."""

from __future__ import annotations

import logging
import re
import time
import urllib.request
from typing import Any

import dask.config
import pytest
from services import until
from services_gateway import Server, gateway, nothing_left, server, surroundings

import hyperplane
from hyperplane import RequestError, StartFailed, StartTimeout
from hyperplane.clusters.dask.gateway import plugins

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["gateway", "nothing_left", "surroundings"]  # fixtures

ONE: dict[str, Any] = {
    "engine": "gateway",
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.5,
    "timeout": 60,
}


def start(settings: dict[str, Any], **options: Any) -> Any:
    return hyperplane.start(
        hyperplane.plan_cluster(**{**ONE, "engine_options": settings, **options})
    )


def test_a_wrong_password(gateway: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG", "not-the-password")
    with pytest.raises(StartFailed, match=r"refuses the login of user 'ada' \(401\)") as caught:
        start(gateway.settings(password_variable="WRONG"))
    assert "not-the-password" not in str(caught.value)


def test_everything_that_is_beyond_the_options_at_once(gateway: Server) -> None:
    settings = gateway.settings(options={"no_such_option": 1})
    with pytest.raises(RequestError) as caught:
        start(settings, nthreads=3, cores_per_worker=3, ram_gb_per_proc=100)
    allowed = {fault.where.split()[1]: fault.allowed for fault in caught.value.faults}
    assert allowed["worker_cores"] == "a whole number from 1 to 2"
    assert allowed["worker_memory"] == "a number from 0.25 to 4"
    assert "environment" in allowed["no_such_option"]


def test_more_workers_than_the_server_gives(gateway: Server) -> None:
    with pytest.raises(StartFailed, match=r"5 worker processes are more than.*limit of 4 workers"):
        start(gateway.settings(), num_workers=5)


def test_an_option_of_another_unit_is_noticed(gateway: Server) -> None:
    wrong = {"worker_cores": "nthreads", "worker_memory": "ram_gb"}
    with pytest.raises(StartFailed, match=r"have 1 thread and 536.9 MB; the plan has .* 500 MB"):
        start(gateway.settings(plan_options=wrong))
    unsaid = {"worker_cores": None, "worker_memory": "ram_gib"}
    with pytest.raises(StartFailed, match="nthreads=1"):
        start(gateway.settings(plan_options=unsaid), nthreads=2, cores_per_worker=2)


def test_a_scheduler_that_does_not_start(gateway: Server) -> None:
    broken = {"environment": {"PYTHONHOME": "/no/such/folder"}}
    with pytest.raises(StartFailed, match=r"ended cluster \w+ \(\w+\)"):
        start(gateway.settings(options=broken))


def test_too_little_time_for_the_scheduler_and_for_the_workers(gateway: Server) -> None:
    with pytest.raises(StartTimeout, match=r"did not start the scheduler within 0.1 s"):
        start(gateway.settings(), timeout=0.1)
    hangs = {"DASK_DISTRIBUTED__WORKER__PRELOAD": "['import time; time.sleep(600)']"}
    with pytest.raises(StartTimeout, match="0 of 1 worker process connected within 40 s") as caught:
        start(gateway.settings(options={"environment": hangs}), timeout=40)
    assert "log of the gateway server" in str(caught.value)


def test_a_proxy_that_is_not_there(gateway: Server) -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        pytest.raises(StartFailed, match=r"through the proxy gateway://127.0.0.1:9 "),
    ):
        start(gateway.settings(proxy_address=9))


def test_a_proxy_that_is_not_there_costs_no_more_than_the_timeout(gateway: Server) -> None:
    began = time.monotonic()
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "90s"}),
        pytest.raises(StartFailed, match=r"the proxy gateway://127.0.0.1:9 "),
    ):
        start(gateway.settings(proxy_address=9), timeout=20)
    assert time.monotonic() - began < 80


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_the_address_that_is_printed_leads_to_the_dashboard(
    gateway: Server, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client, cluster = hyperplane.initialize_cluster(
        **ONE, engine_options=gateway.settings(), scheduler_deploy_mode=mode
    )
    with cluster, client:
        printed = re.search(r"http://\S+/status", capsys.readouterr().out)
        assert printed is not None
        assert printed[0] == client.dashboard_link
        with urllib.request.urlopen(printed[0]) as page:
            assert page.status == 200


@pytest.mark.filterwarnings("ignore:Mismatched versions", "ignore:\\n.*Mismatch")
def test_another_python_on_the_cluster(gateway: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import versions

    here = versions.get_versions
    monkeypatch.setattr(
        "distributed.client.version_module.get_versions",
        lambda packages=None: {**here(packages), "packages": {"python": "3.2.1", "dask": "1"}},
    )
    with pytest.raises(StartFailed, match=r"python 3\.2 here.*Install the same"):
        start(gateway.settings())


def test_a_scheduler_that_takes_no_plugins(
    gateway: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(self: Any) -> Any:
        return int, ("no number",)

    monkeypatch.setattr(plugins.SchedulerSettings, "__reduce__", unreadable)
    with caplog.at_level(logging.WARNING, "hyperplane"):
        client, cluster = start(gateway.settings())
    with cluster, client:
        # The checks before the start warn of the modules of the tests.
        ours = [each for each in caplog.records if "start_checks" not in each.name]
        [line] = [record.getMessage() for record in ours]
        assert "accepts no plugins" in line
        assert "the gateway's own memory policy and idle timeout apply" in line
        assert client.submit(sum, [1, 2]).result() == 3


def test_a_server_that_dies(caplog: pytest.LogCaptureFixture) -> None:
    with server() as mortal:
        client, cluster = start(mortal.settings())
        held = client.submit(sum, [1, 2])
        assert held.result() == 3
        mortal.kill()
        with pytest.raises(hyperplane.EngineError, match=r"cannot be reached|\(502\)"):
            cluster.scale(2)

        def said() -> str:
            with pytest.raises(hyperplane.EngineError) as caught:
                hyperplane.get_cluster(cluster.name, "gateway")
            return str(caught.value)

        until(lambda: "cannot be reached" in said())  # its proxy ends a little later
        with caplog.at_level(logging.WARNING, "hyperplane"):
            client.close()
            cluster.close()
        assert "could not be stopped: the gateway at" in caplog.text
        assert cluster.status.name == "closed"
        assert mortal.processes()
    assert not mortal.processes()
