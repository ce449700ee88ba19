"""Checks before every start: whether they run, and which of their warnings are logged."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client

import hyperplane
from hyperplane import start_checks
from hyperplane.clusters import registry
from hyperplane.clusters.dask import absent_modules
from hyperplane.guard import module_archive
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.environment import PreflightEnvironment
from hyperplane.guard.preflight.missing_modules import check_modules, check_unknown_modules
from hyperplane.guard.preflight.program_modules import LocalModule, ProgramModules
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check


def program_of(*names: str) -> ProgramModules:
    return ProgramModules(local=tuple(LocalModule(name, Path(f"{name}.py")) for name in names))


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({}, 1),
        ({"preflight": False}, 0),
        ({"engine_options": {"hosts": ["a"], "preflight": False}}, 0),
        ({"engine_options": {"hosts": ["a"], "preflight": False}, "preflight": True}, 1),
    ],
)
def test_a_start_can_do_without_the_checks(arguments: dict[str, Any], count: int) -> None:
    def list_checks(plan: Any, request: PreflightRequest) -> list[Check]:
        listed.append(plan.name)
        return []

    listed: list[str] = []
    engine: Any = SimpleNamespace(
        name="cloud", available=lambda: (True, ""), preflight_checks=list_checks
    )
    chosen = {"engine_options": {"hosts": ["a"]}, **arguments}
    plan = hyperplane.plan_cluster(
        engine="ssh", num_workers=1, nprocs=1, ram_gb_per_proc=0.5, **chosen
    )
    start_checks.check_before_start(engine, plan, sync=False)
    assert len(listed) == count
    unusable: Any = SimpleNamespace(name="cloud", available=lambda: (False, "no client"))
    with pytest.raises(hyperplane.EngineUnavailable, match="no client"):
        start_checks.check_before_start(unusable, plan, sync=False)


def test_only_local_modules_that_tasks_need_are_a_warning_without_knowledge_of_the_image() -> None:
    program = program_of("mine", "plots")
    [needed, unknown] = check_unknown_modules(program, "image a:1", needed=["mine"])
    assert (needed.state, unknown.state) == ("warning", "unchecked")
    assert "mine (mine.py): files of this machine that tasks need" in needed.text
    assert "whether image a:1 has plots (plots.py)" in unknown.text
    [unknown] = check_unknown_modules(program, "image a:1")
    assert (unknown.state, unknown.subject) == ("unchecked", "modules")


@pytest.mark.parametrize("answer", ["mine", "", ConnectionError("the worker is lost")])
def test_a_worker_is_asked_for_modules_of_which_nothing_is_known(
    answer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(client: Any, names: Sequence[str]) -> list[str]:
        assert (client, names) == ("client", ["mine", "yours"])
        if isinstance(answer, Exception):
            raise answer
        return answer.split()

    monkeypatch.setattr(absent_modules, "find_absent_modules", ask)
    monkeypatch.setattr(start_checks, "_logged", set())
    program = program_of("mine", "yours")
    monkeypatch.setattr(start_checks, "_find_program", lambda *args, **options: program)
    checks = [Check("modules", lambda _: check_unknown_modules(program, "image a:1"))]
    engine: Any = SimpleNamespace(
        available=lambda: (True, ""), preflight_checks=lambda plan, request: checks
    )
    plan = hyperplane.plan_cluster(
        engine="ssh", engine_options={"hosts": ["a"]}, num_workers=1, nprocs=1, ram_gb_per_proc=0.5
    )
    follow = start_checks.check_before_start(engine, plan, sync=False)
    assert caplog.messages == []
    started: Any = SimpleNamespace(client="client")
    follow(started)
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.partition(" (")[0] for text in texts] == (
        ["engine ssh: modules: mine"] if answer == "mine" else []
    )


@pytest.mark.cluster
def test_a_worker_knows_which_modules_it_lacks() -> None:
    names = ["json", "no_such_module"]
    with Client(processes=False, n_workers=2, dashboard_address="127.0.0.1:0") as client:
        assert absent_modules.find_absent_modules(client, names) == ["no_such_module"]


@pytest.mark.cluster
@pytest.mark.usefixtures("forked_workers")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of Linux")
def test_a_worker_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        [process] = client.run(os.getpid).values()
        os.kill(process, signal.SIGSTOP)
        monkeypatch.setattr(absent_modules, "ANSWER_SECONDS", 0.5)
        try:
            with pytest.raises(TimeoutError):
                absent_modules.find_absent_modules(client, ["json"])
        finally:
            os.kill(process, signal.SIGCONT)


def _engine(*names: str) -> Any:
    """Return an engine whose workers may lack modules, and whose queue is long."""
    program = program_of(*names)
    host = {"host a": PreflightEnvironment(versions={}, modules=dict.fromkeys(names))}
    busy = PreflightFinding("job", "warning", "the queue is long")
    checks = [
        Check("modules", lambda _: check_modules(program, host)),
        Check("job", lambda _: [busy]),
    ]
    return SimpleNamespace(
        available=lambda: (True, ""), preflight_checks=lambda plan, request: checks
    )


def test_a_warning_on_modules_is_logged_once_for_the_same_modules(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start_checks, "_logged", set())
    plan = hyperplane.plan_cluster(
        engine="ssh", engine_options={"hosts": ["a"]}, num_workers=1, nprocs=1, ram_gb_per_proc=0.5
    )
    for names in (["mine"], ["mine"], ["mine", "yours"]):
        start_checks.check_before_start(_engine(*names), plan, sync=False)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.partition(": ")[2][:9] for text in texts].count("job: the ") == 3
    found = [text for text in texts if "modules: " in text]
    assert ["yours" in text for text in found] == [False, True]


def test_a_silent_check_leaves_no_file_in_the_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written, end = threading.Event(), threading.Event()

    def list_checks(plan: Any, request: PreflightRequest) -> list[Check]:
        def wait(deadline: CheckDeadline) -> list[PreflightFinding]:
            with request.for_environment(None):
                written.set()
                end.wait(60)
            return []

        return [Check("hosts", wait)]

    def run_without_the_silent(checks: Sequence[Check], **_: Any) -> list[PreflightFinding]:
        [check] = [each for each in checks if each.subject == "hosts"]
        thread = threading.Thread(target=check.run, args=(CheckDeadline(0.0),), daemon=True)
        thread.start()
        assert written.wait(60)
        assert list(tmp_path.iterdir())
        threads.append(thread)
        return []

    threads: list[threading.Thread] = []
    plan = hyperplane.plan_cluster(
        engine="ssh", engine_options={"hosts": ["a"]}, num_workers=1, nprocs=1, ram_gb_per_proc=0.5
    )
    engine = SimpleNamespace(
        name="cloud", available=lambda: (True, ""), preflight_checks=list_checks
    )
    monkeypatch.setattr(registry, "load", lambda name: engine)
    monkeypatch.setattr(start_checks, "run_checks", run_without_the_silent)
    try:
        hyperplane.preflight(plan, output=tmp_path / "out.parquet")
        assert list(tmp_path.iterdir()) == []
    finally:
        end.set()
        for thread in threads:
            thread.join(60)


def test_processes_with_less_memory_than_an_empty_one_uses_are_not_planned() -> None:
    for call in (hyperplane.plan_cluster, hyperplane.initialize_cluster):
        with pytest.raises(
            hyperplane.RequestError, match=r"ram_gb_per_proc = 0\.05: expected at least 0\.2"
        ):
            call(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.05)
    with pytest.raises(hyperplane.RequestError, match="2 faults") as caught:
        hyperplane.plan_cluster(num_workers=1, nprocs=1, nthreads=0, ram_gb_per_proc=0.05)
    assert "at least 0.2" in str(caught.value)


def test_a_changed_plan_is_checked_at_its_start() -> None:
    plan = hyperplane.plan_cluster(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5)
    less = replace(plan, worker=replace(plan.worker, ram_per_proc=50_000_000))
    with pytest.raises(
        hyperplane.RequestError, match=r"ram_gb_per_proc = 0\.05: expected at least 0\.2"
    ):
        hyperplane.start(less)


@pytest.mark.parametrize("limit", [1, 10**6])
def test_modules_that_are_too_large_to_ship_are_found_for_every_engine(
    limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("a = 1\n")
    program = ProgramModules(local=(LocalModule("mine", tmp_path / "mine.py"),))
    monkeypatch.setattr(start_checks, "_find_program", lambda *args, **options: program)
    monkeypatch.setattr(start_checks, "_checks_of_engine", lambda plan, request: [])
    monkeypatch.setattr(module_archive, "LARGEST_BYTES", limit)
    plan = hyperplane.plan_cluster(
        engine="ssh", engine_options={"hosts": ["a"]}, num_workers=1, nprocs=1, ram_gb_per_proc=0.5
    )
    [finding] = hyperplane.preflight(plan, sync=True).findings
    assert finding.state == ("fault" if limit == 1 else "ok")
    assert hyperplane.preflight(plan).findings == ()
