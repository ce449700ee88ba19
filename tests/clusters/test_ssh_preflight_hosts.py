"""Checks of hosts before a start, of which one has only the scheduler."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

import hyperplane
from hyperplane.clusters.dask.ssh import preflight
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.environment import PreflightEnvironment, describe_here
from hyperplane.guard.preflight.program_modules import LocalModule, ProgramModules
from hyperplane.guard.preflight.request import PreflightRequest

FULL = {"folder": "/proc", "free": 0, "writable": False, "type": "proc"}


def _states(request: PreflightRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the worst state of each subject if the host of the scheduler lacks everything."""
    plan = hyperplane.plan_cluster(
        engine="ssh",
        engine_options={"hosts": ["node-1"], "scheduler_host": "head", "interface": "ib0"},
        num_workers=1,
        ram_gb_per_proc=0.5,
    )

    async def answer(plan: Any, settings: Any, asked: Any, deadline: float) -> dict[str, Any]:
        here = describe_here(asked)
        good = replace(here, interfaces=["ib0"], modules=dict.fromkeys(here.modules, ""))
        modules = dict.fromkeys(here.modules, None)
        paths = dict.fromkeys(asked.paths, False)
        bad = PreflightEnvironment({**here.versions, "dask": "1"}, modules, FULL, 1, [], paths)
        return {"head": bad, "node-1": good}

    monkeypatch.setattr(preflight, "_query_hosts", answer)
    [check] = [each for each in preflight.list_checks(plan, request) if each.subject == "hosts"]
    found = list(check.run(CheckDeadline(time.monotonic() + 60)))
    assert all("node-1" not in str(finding) for finding in found if finding.state == "fault")
    return {finding.subject: finding.state for finding in reversed(found)}


def test_the_host_of_the_scheduler_is_not_judged_as_one_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = _states(PreflightRequest(inputs=("/",)), monkeypatch)
    assert (states["versions"], states["interface"]) == ("fault", "fault")
    assert states["spill folder"] != "fault"
    assert states["hosts"] == "ok"
    assert {"data", "memory"}.isdisjoint(states)


def test_the_scheduler_needs_the_modules_of_graphs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    program = ProgramModules(local=(LocalModule("only_here", tmp_path),))
    needed = frozenset({"only_here"})
    states = _states(PreflightRequest(program, needed), monkeypatch)
    assert states["modules"] == "fault"
