"""Tests of jobs on a service that every runner of a service must pass.

The tests of each runner subclass them; their fixture ``service`` runs the service.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dask
import pytest
from container_service import ContainerService
from job_cases import bash
from services import until
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.cli.job_foreground import run_in_foreground
from hyperplane.core.artifact_reports import LINE_MARKER, SEND_VARIABLE
from hyperplane.jobs import Pipeline, Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners import (
    cloudwatch_log,
    registry,
    retry_time,
    service_job_id,
    service_process,
)
from hyperplane.jobs.runners.measured_program import USAGE_MARKER
from hyperplane.jobs.step_records import describe_usage
from hyperplane.jobs.store.job_records import DONE, FAILED, LOST, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.store.tables import STEPS


def log_of(job: Job, attempt: Attempt) -> str:
    """Return the log of an attempt."""
    return (job.folder_path / attempt.log).read_text()


def shorten_aws_waits(monkeypatch: pytest.MonkeyPatch, process_type: type[Any]) -> None:
    """Let the runner of a service of Amazon wait for less time."""
    monkeypatch.setattr(process_type, "poll_seconds", 0.1)
    monkeypatch.setattr(service_process, "VANISHED_SECONDS", 0.5)
    monkeypatch.setattr(cloudwatch_log, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(service_job_id, "UNCONFIRMED_SECONDS", 1.0)
    monkeypatch.setattr(retry_time, "MAX_PAUSE_SECONDS", 0.2)


def attempt_command(folder: Path, *words: str) -> AttemptCommand:
    """Return the command of the first attempt at a step."""
    above = folder / str(uuid.uuid4()) / "steps" / "000-one"
    above.mkdir(parents=True)
    command = AttemptCommand(words or ("sleep", "600"), {}, ".", above / "attempt-1")
    command.file(".log").touch()
    return command


def during(
    service: ContainerService, action: Callable[[str], None], sign: Path | None = None
) -> threading.Thread:
    """Call a function with the id of the first job when that runs, or has made a sign."""

    def act() -> None:
        until(service.started)
        until(lambda: sign is None or sign.exists())
        action(service.ids()[0])

    thread = threading.Thread(target=act)
    thread.start()
    return thread


class ServiceJobContract:
    """Lost answers, refusals, lost jobs, uploads, notebooks, cancellations and dry runs."""

    #: Name and title of the runner, and the options of submissions.
    runner: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[Callable[..., dict[str, Any]]]
    #: Operation that creates a job, and the field of its body with the name.
    create: ClassVar[str]
    name_field: ClassVar[str]
    #: Times of creation of three chunks and a repeated one.
    creations: ClassVar[int]
    #: Operations of a job that runs -> faults of its next requests.
    reading_faults: ClassVar[dict[str, list[str]]]
    #: The same during a cancellation.
    cancelling_faults: ClassVar[dict[str, list[str]]]
    #: Reason of a container whose machine was lost.
    lost_machine: ClassVar[str]
    #: What a dry run says of the cost, an option that the service refuses, and why.
    cost: ClassVar[str]
    wrong_option: ClassVar[tuple[str, str, str]]

    @pytest.fixture
    def refusal(self) -> str:
        """Fault of a creation that may be repeated; runners have those of their service."""
        raise NotImplementedError

    def content(self, service: ContainerService) -> dict[str, Any]:
        """Return the name and the time of the last upload of each content in the bucket."""
        raise NotImplementedError

    @classmethod
    def run(
        cls, *steps: Step, root: Path | None = None, **options: Any
    ) -> tuple[Job, list[Attempt]]:
        """Run a job to its end in this process; return it with its attempts."""
        pipeline = Pipeline.from_steps("p", steps, root=root)
        resolved = registry.resolve_options(cls.runner, cls.options(**options))
        job = new_job(pipeline, runner=cls.runner, max_retries=0, runner_options=resolved)
        store = open_store()
        with dask.config.set({"hyperplane.jobs.retry_wait": "0.1s"}):
            ended = asyncio.run(run_in_foreground(store, job, resolved, quiet=True))
        return ended, store.attempts(job.id)

    @classmethod
    def create_runner(cls, **options: Any) -> Any:
        """Return a runner with the options of submissions."""
        resolved = registry.resolve_options(cls.runner, cls.options(**options))
        return registry.create_runner(cls.runner, dict(os.environ), resolved)

    @pytest.mark.slow
    def test_only_failed_chunks_are_submitted_again(
        self, service: ContainerService, tmp_path: Path
    ) -> None:
        text = f'if [ "$CHUNK_ID" = 1 ] && mkdir {tmp_path}/once; then exit 75; fi; echo $CHUNK_ID'
        job, attempts = self.run(bash("years", text, chunks=3, retries=1))
        assert job.status == DONE, job.reason
        assert sorted((each.chunk, each.number, each.status) for each in attempts) == [
            (0, 1, DONE), (1, 1, FAILED), (1, 2, DONE), (2, 1, DONE)
        ]  # fmt: skip
        assert service.count(self.create) == self.creations

    @pytest.mark.slow
    @pytest.mark.parametrize("fault", ["lose", "answer 500", "answer 503"])
    def test_a_job_whose_creation_has_no_answer_is_found_and_not_created_again(
        self, service: ContainerService, fault: str
    ) -> None:
        service.faults[self.create] = [fault]
        job, [attempt] = self.run(bash("one", "echo once"))
        assert (job.status, attempt.status) == (DONE, DONE)
        assert log_of(job, attempt).count("once") == 1
        assert service.count(self.create) == 1
        assert len(service.ids()) == 1

    @pytest.mark.slow
    def test_a_refused_creation_is_repeated_until_it_is_accepted(
        self, service: ContainerService, refusal: str
    ) -> None:
        service.faults[self.create] = [refusal] * 2
        job, [attempt] = self.run(bash("one", "echo once"))
        assert (job.status, attempt.status) == (DONE, DONE)
        assert service.count(self.create) == 3
        assert len(service.ids()) == 1

    @pytest.mark.slow
    def test_a_creation_that_no_list_shows_is_repeated_as_another_attempt(
        self, service: ContainerService
    ) -> None:
        service.faults[self.create] = ["refuse 503 ServiceUnavailable"]
        job, attempts = self.run(bash("one", "echo once"))
        assert job.status == DONE
        assert [attempt.status for attempt in attempts] == [LOST, DONE]
        assert len({body[self.name_field] for body in service.bodies(self.create)}) == 2
        assert len(service.ids()) == 1

    @pytest.mark.slow
    def test_a_job_continues_when_the_service_answers_again(
        self, service: ContainerService
    ) -> None:
        service.faults |= {name: list(faults) for name, faults in self.reading_faults.items()}
        job, [attempt] = self.run(bash("one", "echo once"))
        assert (job.status, attempt.status) == (DONE, DONE)
        assert log_of(job, attempt).count("once") == 1

    @pytest.mark.slow
    def test_objects_that_a_step_has_saved_are_attached(self, service: ContainerService) -> None:
        report = json.dumps({
            "kind": "dataframe", "created": 1.0, "url": "s3://bucket/delays.parquet",
            "format": "parquet", "size": 900, "rows": 3, "files": 1,
        })  # fmt: skip
        line = f"'\\n%s\\n' '{LINE_MARKER}{report}'"
        text = f'[ "${SEND_VARIABLE}" = 1 ] && echo before && printf {line} && echo after'
        job, [attempt] = self.run(bash("save", text))
        assert job.status == DONE, job.reason
        [found] = open_store().artifacts(job.id)
        assert (found.name, found.kind, found.rows, found.size, found.url) == (
            "delays.parquet", "table", 3, 900, "s3://bucket/delays.parquet"
        )  # fmt: skip
        assert log_of(job, attempt) == "before\nafter\n"

    @pytest.mark.slow
    def test_what_a_step_took_is_recorded(self, service: ContainerService) -> None:
        # In a container the step is the only user of it; here 100 MB are more than Python takes.
        text = "block = bytearray(b'x') * 100_000_000; print(sum(range(10_000_000)), end='')"
        step = Step(name="sum", kind="command", argv=("python", "-c", text))
        job, [attempt] = self.run(step)
        assert job.status == DONE, job.reason
        assert log_of(job, attempt) == "49999995000000\n"
        [record] = open_store().runs(job.machine, job_id=job.id, kind=STEPS)
        [worker] = record.workers
        assert 100e6 < worker.peak < 300e6
        assert 0.05 < record.cpu_seconds < 100
        shown = CliRunner().invoke(app, ["job", "show", job.id])
        assert describe_usage(record)[0] in shown.output

    @pytest.mark.slow
    def test_a_failed_step_has_its_exit_code_and_figures(self, service: ContainerService) -> None:
        job, [attempt] = self.run(bash("one", "echo wrong; exit 7"))
        assert (job.status, attempt.exit_code) == (FAILED, 7)
        assert attempt.reason.startswith("exit code 7: ")
        log = log_of(job, attempt)
        assert log.startswith("wrong\n")
        assert USAGE_MARKER not in log
        [record] = open_store().runs(job.machine, job_id=job.id, kind=STEPS)
        assert record.workers[0].peak > 0

    @pytest.mark.slow
    def test_a_program_killed_for_its_memory_is_classified(self, service: ContainerService) -> None:
        job, [attempt] = self.run(bash("one", "kill -KILL $$"))
        assert (job.status, attempt.exit_code, attempt.fault) == (FAILED, -9, "memory")

    @pytest.mark.slow
    def test_a_job_that_vanishes_is_lost_and_repeated(
        self, service: ContainerService, tmp_path: Path
    ) -> None:
        thread = during(service, service.forget, tmp_path / "once")
        job, attempts = self.run(bash("one", f"mkdir {tmp_path}/once && sleep 600; echo again"))
        thread.join()
        assert job.status == DONE, job.reason
        assert [attempt.status for attempt in attempts] == [LOST, DONE]
        assert "the attempt is lost" in log_of(job, attempts[0])

    @pytest.mark.slow
    def test_a_lost_machine_repeats_the_attempt_without_counting_it(
        self, service: ContainerService, tmp_path: Path
    ) -> None:
        thread = during(
            service,
            lambda job_id: service.interrupt(job_id, self.lost_machine),
            tmp_path / "once",
        )
        job, attempts = self.run(bash("one", f"mkdir {tmp_path}/once && sleep 600; echo again"))
        thread.join()
        assert job.status == DONE, job.reason
        assert [attempt.status for attempt in attempts] == [LOST, DONE]
        text = f"{self.title} lost the machine of the job: {self.lost_machine}"
        assert text in log_of(job, attempts[0])

    @pytest.mark.slow
    def test_scripts_and_folders_are_sent_once(
        self, service: ContainerService, tmp_path: Path
    ) -> None:
        root = tmp_path / "pipeline"
        (root / "steps").mkdir(parents=True)
        (root / "steps" / "tool.py").write_text("WORD = 'imported'\n")
        (root / "data.txt").write_text("read\n")
        (root / "steps" / "a.py").write_text(
            "import os, tool\nprint(tool.WORD, open('data.txt').read(), os.environ['CHUNK_ID'])\n"
        )
        step = Step(name="a", kind="python", path="steps/a.py", chunks=2)
        job, attempts = self.run(step, root=root, stage="folder")
        assert job.status == DONE, job.reason
        assert all("imported read" in log_of(job, attempt) for attempt in attempts)
        before = self.content(service)
        assert before
        job, attempts = self.run(step, root=root, stage="folder")
        assert job.status == DONE, job.reason
        assert self.content(service) == before

    @pytest.mark.slow
    def test_an_executed_notebook_comes_back(
        self, service: ContainerService, tmp_path: Path
    ) -> None:
        cells = [
            {"cell_type": "code", "id": "a", "source": "print(6 * 7)", "metadata": {},
             "outputs": [], "execution_count": None}
        ]  # fmt: skip
        notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
        step = Step(
            name="a", kind="notebook", path="a.ipynb", output_path="out.ipynb",
            resources=Resources(cores=4, ram_gb=30),
        )  # fmt: skip
        job, attempts = self.run(step, root=tmp_path)
        assert job.status == DONE, (job.reason, log_of(job, attempts[-1]))
        assert "42" in (tmp_path / "out.ipynb").read_text()
        assert "hyperplane-notebook:" not in log_of(job, attempts[-1])

    @pytest.mark.parametrize("fault", ["", "lose"])
    def test_nothing_is_left_of_a_job_that_is_cancelled_while_it_waits(
        self, service: ContainerService, tmp_path: Path, fault: str
    ) -> None:
        service.waiting_for = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
        service.faults[self.create] = [fault]
        service.faults |= {name: list(faults) for name, faults in self.cancelling_faults.items()}
        command = attempt_command(tmp_path)

        async def work() -> None:
            runner = self.create_runner()
            process = await runner.start(command, bash("one", "true"), 1.0)
            assert await process.end(1.0) != 0
            await runner.close()

        asyncio.run(work())
        assert service.running() == []
        assert len(service.ids()) == 1

    def test_a_creation_whose_id_was_not_stored_is_found_and_ended(
        self, service: ContainerService, tmp_path: Path
    ) -> None:
        service.waiting_for = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
        command = attempt_command(tmp_path)

        async def work() -> None:
            runner = self.create_runner()
            await runner.start(command, bash("one", "true"), 1.0)
            # As if the supervisor had been killed before the answer, and the request repeated.
            [request] = service.bodies(self.create)
            await runner._get_client().create(request)
            stored = runner.job_id_type.read(command)
            replace(stored, id="", written=time.time()).write(command)
            assert len(service.running()) == 2
            await runner.reattach(command).end(1.0)
            await asyncio.to_thread(until, lambda: not service.running())
            await runner.close()

        asyncio.run(work())

    def test_a_dry_run_checks_the_service_and_shows_the_cost(
        self, service: ContainerService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a.sh").write_text("true\n")
        (tmp_path / "p.yaml").write_text(
            "pipeline: {name: p, tasks: [{name: a, type: bash script, bash_script_path: a.sh}]}\n"
        )

        def dry_run(**options: str) -> Any:
            words = ["job", "submit", "p.yaml", "--runner", self.runner, "--dry-run"]
            for name, text in self.options(**options).items():
                words += ["--runner-option", f"{name}={text}"]
            return CliRunner().invoke(app, words)

        result = dry_run()
        assert result.exit_code == 0, result.output
        assert f"cost  step 'a': {self.cost}" in result.output
        result = dry_run(budget="1 core-hours")
        assert result.exit_code == 2
        assert "the most that the job may take" in " ".join(result.output.split())
        name, value, reason = self.wrong_option
        result = dry_run(**{name: value})
        assert result.exit_code == 2
        assert reason in " ".join(result.output.split())
        assert service.count(self.create) == 0
