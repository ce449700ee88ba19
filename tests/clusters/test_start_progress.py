"""What the start of a cluster shows while it waits."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import Any

import dask
import pytest
from distributed import LocalCluster
from published_lines import BRAND, LOGS, NOW, SELECTING

import hyperplane
from hyperplane.clusters import start_progress
from hyperplane.clusters.dask import wait_for_workers
from hyperplane.clusters.dask.settings import restore_client_settings
from hyperplane.clusters.start_progress import report_start, show_start
from hyperplane.core import wait_display
from hyperplane.spec.settings import RemoteSettings

SMALL: dict[str, Any] = {
    "num_workers": 1, "nprocs": 2, "nthreads": 1, "ram_gb_per_proc": 0.5, "local_fit": "exact",
    "engine": "local",
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_display, "INTERVAL", 0.01)
    monkeypatch.setattr("hyperplane.core.progress_output._LEAST_PAUSE", 0.0)


def replace_errors(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Replace standard error; not in a fixture, after which pytest replaces it again."""
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    return errors


def test_a_report_is_shown_until_the_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = replace_errors(monkeypatch)
    plan = hyperplane.plan_cluster(**SMALL)
    with show_start(plan, 0.0):
        report_start(plan.name, 1, "squeue reports: 1 pending (Resources). Raise timeout to wait")
        report_start("another", 2, "nothing")
        end = time.monotonic() + 30
        while "Resources" not in errors.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    line = next(line for line in errors.getvalue().splitlines() if "Resources" in line)
    assert "] start (local): 1 of 2 workers, " in line
    assert line.endswith("; squeue reports: 1 pending (Resources)")
    assert "after" not in errors.getvalue()
    assert start_progress._displays == {}
    report_start(plan.name, 2, "after the end")


def test_a_reason_is_visible_on_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            return 2

    errors = Terminal()
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    plan = hyperplane.plan_cluster(**SMALL)
    with show_start(plan, 0.0):
        end = time.monotonic() + 30
        while "[------------] start (local): 0 of 2" not in errors.getvalue():
            assert time.monotonic() < end
            time.sleep(0.01)
        report_start(plan.name, 1, "squeue reports: 15 pending (Resources)")
        while "(Resources)" not in errors.getvalue():
            assert time.monotonic() < end
            time.sleep(0.01)
    lines = errors.getvalue().split("\r\x1b[2K")
    assert max(map(len, lines)) < 80
    assert any(
        line.startswith("start (local): 1 of 2 workers, ")
        and line.endswith("15 pending (Resources)")
        for line in lines
    )


@pytest.mark.cluster
def test_the_documented_lines_are_alone_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = replace_errors(monkeypatch)
    with dask.config.set({"hyperplane.progress.delay": 0}):
        client, cluster = hyperplane.initialize_cluster(**SMALL)
    url = cluster.dashboard_link.replace("/status", f"/{cluster.name}/status")
    client.close()
    cluster.close()
    place = "in this process and 2 worker processes on this machine"
    assert capsys.readouterr().out.splitlines() == [
        *SELECTING,
        f"{BRAND} starting the scheduler {place}",
        f"{NOW} {url}",
        LOGS,
    ]
    assert "start (local): 0 of 2 workers" in errors.getvalue()


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_standard_error_that_cannot_be_used_does_not_stop_a_start(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sink:
        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            pass

    errors: Any = io.StringIO() if is_closed else Sink()
    if is_closed:
        errors.close()
    monkeypatch.setattr(sys, "stderr", errors)
    with dask.config.set({"hyperplane.progress.delay": 0}):
        client, cluster = hyperplane.initialize_cluster(**SMALL)
    with cluster, client:
        assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.cluster
def test_missing_workers_and_the_reason_of_the_engine_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = replace_errors(monkeypatch)
    monkeypatch.setattr(wait_for_workers, "POLL_INTERVAL", 0.1)
    plan = hyperplane.plan_cluster(**SMALL, name="joined", timeout=60)
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:

        def explain() -> str:
            if "1 of 2 workers" in errors.getvalue() and "job 17 waits" in errors.getvalue():
                cluster.scale(2)
            return "job 17 waits. Do something"

        with show_start(plan, 0.0):
            client = wait_for_workers.connect_client(
                cluster, plan, RemoteSettings(), time.monotonic(), explain
            )
        client.close()
    restore_client_settings("joined")
    assert "1 of 2 workers" in errors.getvalue()
    assert "; job 17 waits\n" in errors.getvalue()


def test_the_setting_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = replace_errors(monkeypatch)
    plan = hyperplane.plan_cluster(**SMALL)
    with show_start(plan, None):
        report_start(plan.name, 1, "x")
        assert start_progress._displays == {}
    assert errors.getvalue() == ""
