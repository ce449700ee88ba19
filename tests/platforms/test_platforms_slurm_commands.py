"""How Slurm's commands are run."""

from __future__ import annotations

import ast
import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slurm_programs import SlurmPrograms, install

import hyperplane.platforms.slurm as package
from hyperplane.platforms.slurm.commands import (
    COMMANDS,
    CommandResult,
    drop_job_variables,
    find_missing_commands,
    run_command,
    run_command_async,
)


def run_in_loop(*arguments: Any, **options: Any) -> CommandResult:
    return asyncio.run(run_command_async(*arguments, **options))


BOTH = pytest.mark.parametrize("run", [run_command, run_in_loop])
Run = Callable[..., CommandResult]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SlurmPrograms:
    return install(monkeypatch, tmp_path)


@BOTH
@pytest.mark.process
def test_output_errors_and_exit_code_are_returned(run: Run, programs: SlurmPrograms) -> None:
    programs.write("squeue", "cat; printf 'two\\n\\n  lines \\377' >&2; exit 3")
    result = run(["squeue", "a b"], stdin="größer\udc80")
    assert result == (3, "größer�", "two\n\n  lines �")
    assert result.message == "two; lines �"
    assert programs.calls() == ["a b"]


@BOTH
@pytest.mark.process
def test_the_command_is_found_and_runs_in_its_environment(
    run: Run, programs: SlurmPrograms, tmp_path: Path
) -> None:
    programs.write("squeue", "printf here")
    other = SlurmPrograms(tmp_path / "other")
    other.folder.mkdir()
    other.write("squeue", 'printf "%s" "$NAME"')
    path = f"{other.folder}:/usr/bin:/bin"
    assert run(["squeue"]).output == "here"
    assert run(["squeue"], {"PATH": path, "NAME": "x"}).output == "x"
    assert run(["squeue"], {"PATH": "/nonexistent", "NAME": "y"}, path=path).output == "y"


@pytest.mark.slow
@BOTH
@pytest.mark.process
def test_a_command_that_does_not_end_is_killed(
    run: Run, programs: SlurmPrograms, tmp_path: Path
) -> None:
    programs.write("squeue", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with pytest.raises(TimeoutError) as caught:
        run(["squeue"], timeout=2)
    assert caught.value.strerror == "squeue does not answer within 2 s"
    file = tmp_path / "pid"
    deadline = time.monotonic() + 30  # on a busy machine it may not have begun
    while file.exists() and Path(f"/proc/{file.read_text().strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.process
def test_a_command_is_killed_by_a_cancellation_if_asked_for(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    programs.write("squeue", f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 300")

    async def cancelled() -> int:
        running = asyncio.ensure_future(run_command_async(["squeue"], kill_on_cancel=True))
        async with asyncio.timeout(60):
            while not started.exists():
                await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return int(started.read_text())

    process = asyncio.run(cancelled())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@BOTH
@pytest.mark.process
def test_a_command_that_is_missing_is_an_os_error(run: Run) -> None:
    with pytest.raises(FileNotFoundError):
        run(["squeue"], {"PATH": "/nonexistent"})


def test_a_command_that_fails_silently_has_a_message() -> None:
    assert CommandResult(2, "", " \n").message == "exit code 2"


@pytest.mark.process
def test_missing_commands_are_named(programs: SlurmPrograms) -> None:
    environment = {"PATH": str(programs.folder)}
    assert find_missing_commands(environment) == list(COMMANDS)
    programs.write("squeue", "")
    assert find_missing_commands(environment) == ["sbatch", "scancel"]


def test_variables_of_a_surrounding_job_are_dropped_and_those_of_users_stay() -> None:
    surrounding = {
        *("SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SQUEUE_FORMAT", "SCANCEL_USER"),
        *("SBATCH_EXPORT", "SBATCH_JOB_NAME", "SBATCH_ARRAY_INX", "SBATCH_CLUSTERS"),
    }
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_PARTITION": "long", "PATH": "/bin"}
    assert drop_job_variables({**dict.fromkeys(surrounding, "x"), **kept}) == kept


def test_the_platform_imports_nothing_of_dask_and_nothing_of_jobs() -> None:
    allowed = ("hyperplane.platforms.", "hyperplane.core.", "hyperplane.spec.")
    for file in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                known = (
                    name.startswith(allowed) or name.partition(".")[0] in sys.stdlib_module_names
                )
                assert known, f"{file.name} imports {name}"
