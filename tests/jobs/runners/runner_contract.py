"""Tests that every runner must pass; the tests of each runner subclass them."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from job_cases import is_alive
from runner_cases import command, make_job
from services import until

from hyperplane.errors import RequestError
from hyperplane.jobs import Pipeline
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners import registry

Result = TypeVar("Result")

#: Time limit in seconds, for work that takes a few on an idle machine.
SOON = 120.0
#: A supervisor that starts an attempt and is gone at once.
SUPERVISOR = """
import asyncio, os, pickle, sys
from hyperplane.jobs.runners import registry
name, environment, options, command, step = pickle.load(sys.stdin.buffer)
runner = registry.create_runner(name, environment, options)
asyncio.run(runner.start(command, step, 1.0))
os._exit(0)
"""
STEP = command("one", "true")


@pytest.mark.process
class RunnerContract:
    """Start, wait for, end and reattach to attempts at steps."""

    name: str

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Valid options of a submission; the fixture also starts what the runner needs."""
        return {}

    @pytest.fixture
    def runner(self, options: dict[str, Any]) -> Any:
        return self.create(options)

    def create(self, options: dict[str, Any]) -> Any:
        resolved = registry.resolve_options(self.name, options)
        return registry.create_runner(self.name, dict(os.environ), resolved)

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str | None:
        """Make the runner unavailable, and return a part of the reason; None if it never is."""
        raise AssertionError(f"define how the runner {self.name} is unavailable")

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        """Return a pipeline that the runner does not support, and a part of the fault."""
        raise AssertionError(f"define what the runner {self.name} does not support")

    async def finish(self, runner: Any) -> None:
        """Close what a runner keeps open while its supervisor runs."""

    def run(self, runner: Any, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Run a coroutine with a runner, as a supervisor does."""

        async def main() -> Result:
            try:
                return await asyncio.wait_for(work(runner), SOON)
            finally:
                await self.finish(runner)

        return asyncio.run(main())

    def attempt(self, folder: Path, script: str, **variables: str) -> AttemptCommand:
        """An attempt, of a new job, at a step that runs a script of bash.

        Services that are shared by tests keep the objects of an attempt under the id of its job.
        """
        above = folder / str(uuid.uuid4()) / "steps" / "000-one"
        above.mkdir(parents=True)
        return AttemptCommand(
            ("bash", "-c", script),
            {**os.environ, **variables},
            str(folder),
            above / "attempt-1",
            step_variables=variables,
        )

    def test_is_registered_under_its_name(self, runner: Any) -> None:
        assert self.name in registry.RUNNERS.names()
        assert runner.name == self.name
        assert isinstance(registry.has_shared_files(self.name), bool)

    def test_is_available_or_gives_the_reason(
        self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.create(options).unavailable_reason() == ""
        reason = self.unavailable(options, monkeypatch)
        if reason is not None:
            assert reason in self.create(options).unavailable_reason()

    def test_unknown_options_are_refused_together(self, options: dict[str, Any]) -> None:
        with pytest.raises(RequestError) as caught:
            registry.resolve_options(self.name, {**options, "no_such": 1, "nor_this": 2})
        where = {fault.where for fault in caught.value.faults}
        assert where == {"runner_options.no_such", "runner_options.nor_this"}

    def test_resolved_options_are_stored_as_json(self, options: dict[str, Any]) -> None:
        resolved = registry.resolve_options(self.name, options)
        assert json.loads(json.dumps(resolved)) == resolved
        assert registry.resolve_options(self.name, resolved) == resolved

    def test_unsupported_pipelines_are_found_before_the_start(
        self, runner: Any, tmp_path: Path
    ) -> None:
        assert runner.find_unsupported(make_job(STEP, root=tmp_path).pipeline) == []
        pipeline, expected = self.unsupported(tmp_path)
        [fault] = runner.find_unsupported(pipeline)
        assert expected in str(fault)

    @pytest.mark.parametrize("code", [0, 3])
    def test_exit_code_output_and_variables(self, runner: Any, tmp_path: Path, code: int) -> None:
        hostile = "$(touch canary) 'it''s' \"x\" \n größer"
        script = f'printf "%s" "$VALUE"; echo error >&2; exit {code}'
        attempt = self.attempt(tmp_path, script, VALUE=hostile)

        async def work(runner: Any) -> int | None:
            process = await runner.start(attempt, STEP, 1.0)
            await process.wait_until_running()
            exit_code: int | None = await process.wait()
            assert process.exit_code() == exit_code
            return exit_code

        assert self.run(runner, work) == code
        log = attempt.file(".log").read_text()
        assert hostile in log
        assert "error" in log
        assert not list(tmp_path.rglob("canary"))

    @pytest.mark.parametrize("polite", [True, False])
    def test_an_attempt_is_terminated_and_killed_after_the_grace_period(
        self, runner: Any, tmp_path: Path, polite: bool
    ) -> None:
        then = "sleep 0.2; echo ending; echo ended > ended; exit 7" if polite else ""
        script = (
            f"cd {tmp_path}; trap '{then}' TERM; echo $$ > draft; mv draft pid; "
            "while true; do sleep 0.05; done"
        )
        attempt = self.attempt(tmp_path, script)

        async def work(runner: Any) -> int | None:
            process = await runner.start(attempt, STEP, 1.0)
            await process.wait_until_running()
            await asyncio.to_thread(until, (tmp_path / "pid").exists)
            exit_code: int | None = await process.end(60.0 if polite else 0.2)
            return exit_code

        assert self.run(runner, work) != 0
        pid = int((tmp_path / "pid").read_text())
        until(lambda: not is_alive(pid))
        assert (tmp_path / "ended").exists() == polite

    def test_the_next_supervisor_reattaches_to_an_attempt(
        self, options: dict[str, Any], runner: Any, tmp_path: Path
    ) -> None:
        script = (
            f"cd {tmp_path}; echo once; touch begun; until [ -e go ]; do sleep 0.05; done; exit 5"
        )
        attempt = self.attempt(tmp_path, script)
        resolved = registry.resolve_options(self.name, options)
        subprocess.run(
            [sys.executable, "-c", SUPERVISOR],
            input=pickle.dumps((self.name, dict(os.environ), resolved, attempt, STEP)),
            timeout=SOON,
            check=True,
        )
        until((tmp_path / "begun").exists)

        async def work(runner: Any) -> int | None:
            process = runner.reattach(attempt)
            assert process.exit_code() is None
            await process.wait_until_running()
            (tmp_path / "go").touch()
            exit_code: int | None = await process.wait()
            assert process.end_time() > 0
            return exit_code

        assert self.run(runner, work) == 5
        assert attempt.file(".log").read_text().count("once") == 1
