"""Jobs on moto's AWS Batch: arrays, secrets, lost answers, refusals, lost jobs, and the check."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batch_service
import dask
import pytest
from batch_service import BatchService
from job_cases import bash
from runner_cases import make_job
from services import until
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.cli.job_foreground import run_in_foreground
from hyperplane.jobs import Pipeline, Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners import registry, retry_time, service_job_id, service_process
from hyperplane.jobs.runners.aws_batch import (
    batch_log,
    batch_process,
)
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId
from hyperplane.jobs.store.job_records import DONE, FAILED, LOST, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store

pytestmark = [pytest.mark.process, pytest.mark.service]


@pytest.fixture
def service(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchService]:
    monkeypatch.setattr(batch_process.BatchProcess, "poll_seconds", 0.1)
    monkeypatch.setattr(service_process, "VANISHED_SECONDS", 0.5)
    monkeypatch.setattr(batch_process, "NEVER_STARTS_SECONDS", 0.5)
    monkeypatch.setattr(batch_log, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(service_job_id, "UNCONFIRMED_SECONDS", 1.0)
    monkeypatch.setattr(retry_time, "MAX_PAUSE_SECONDS", 0.2)
    folder = tmp_path / "containers"
    folder.mkdir()
    service = BatchService(moto, folder)
    for name, text in batch_service.variables(moto, service.url).items():
        monkeypatch.setenv(name, text)
    yield service
    service.close()


def run(*steps: Step, root: Path | None = None, **options: Any) -> tuple[Job, list[Attempt]]:
    """Run a job to its end in this process; return it with its attempts."""
    pipeline = Pipeline.from_steps("p", steps, root=root)
    resolved = registry.resolve_options("aws-batch", batch_service.options(**options))
    job = new_job(pipeline, runner="aws-batch", max_retries=0, runner_options=resolved)
    store = open_store()
    with dask.config.set({"hyperplane.jobs.retry_wait": "0.1s"}):
        ended = asyncio.run(run_in_foreground(store, job, resolved, quiet=True))
    return ended, store.attempts(job.id)


def log_of(job: Job, attempt: Attempt) -> str:
    return (job.folder_path / attempt.log).read_text()


@pytest.mark.slow
def test_chunks_are_one_array_job_and_each_knows_its_item(service: BatchService) -> None:
    count = "$HYPERPLANE_SHARD_INDEX/$HYPERPLANE_SHARD_COUNT"
    text = f'echo "$CHUNK_ID {count} $ITEM [$AWS_BATCH_JOB_ARRAY_INDEX]"'
    job, attempts = run(bash("years", text, foreach=("2013", "it's 2014", "2015")))
    assert job.status == DONE, job.reason
    logs = [log_of(job, attempt).strip() for attempt in sorted(attempts, key=lambda a: a.chunk)]
    assert logs == ["0 0/3 2013 []", "1 1/3 it's 2014 []", "2 2/3 2015 []"]
    assert service.count("submitjob") == 1
    [(_, request)] = [each for each in service.requests if each[0] == "submitjob"]
    assert request["arrayProperties"] == {"size": 3}


@pytest.mark.slow
def test_only_failed_chunks_are_submitted_again(service: BatchService, tmp_path: Path) -> None:
    text = f'if [ "$CHUNK_ID" = 1 ] && mkdir {tmp_path}/once; then exit 75; fi; echo $CHUNK_ID'
    job, attempts = run(bash("years", text, chunks=3, retries=1))
    assert job.status == DONE, job.reason
    assert sorted((each.chunk, each.number, each.status) for each in attempts) == [
        (0, 1, DONE), (1, 1, FAILED), (1, 2, DONE), (2, 1, DONE)
    ]  # fmt: skip
    sizes = [
        request.get("arrayProperties") for name, request in service.requests if name == "submitjob"
    ]
    assert sizes == [{"size": 3}, None]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lose", "answer 500", "answer 503"])
def test_a_job_whose_submission_has_no_answer_is_found_and_not_submitted_again(
    service: BatchService, fault: str
) -> None:
    service.faults["submitjob"] = [fault]
    job, [attempt] = run(bash("one", "echo once"))
    assert (job.status, attempt.status) == (DONE, DONE)
    assert log_of(job, attempt).count("once") == 1
    assert service.count("submitjob") == 1
    assert len(service.tasks) == 1


@pytest.mark.slow
def test_a_refused_submission_is_repeated_until_it_is_accepted(service: BatchService) -> None:
    service.faults["submitjob"] = ["refuse 429 TooManyRequestsException"] * 2
    job, [attempt] = run(bash("one", "echo once"))
    assert (job.status, attempt.status) == (DONE, DONE)
    assert service.count("submitjob") == 3
    assert len(service.tasks) == 1


@pytest.mark.slow
def test_a_submission_that_no_list_shows_is_repeated_as_another_attempt(
    service: BatchService,
) -> None:
    service.faults["submitjob"] = ["refuse 503 ServiceUnavailable"]
    job, attempts = run(bash("one", "echo once"))
    assert job.status == DONE
    assert [attempt.status for attempt in attempts] == [LOST, DONE]
    names = [request["jobName"] for name, request in service.requests if name == "submitjob"]
    assert len(set(names)) == 2
    assert len(service.tasks) == 1


@pytest.mark.slow
def test_a_submission_continues_after_a_login(service: BatchService) -> None:
    service.faults["describejobdefinitions"] = ["refuse 403 ExpiredTokenException"]
    service.faults["submitjob"] = ["refuse 403 ExpiredTokenException"]
    job, [attempt] = run(bash("one", "true"))
    assert (job.status, attempt.status) == (DONE, DONE)
    assert len(service.tasks) == 1


def test_expired_credentials_fail_an_attempt_with_advice_before_anything_runs(
    service: BatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_time, "SUBMIT_SECONDS", 0.1)
    service.faults["describejobdefinitions"] = ["refuse 403 ExpiredTokenException"] * 9
    job, [attempt] = run(bash("one", "true"))
    assert job.status == FAILED
    assert "the credentials for Amazon cannot be used" in attempt.reason
    assert "aws sso login" in attempt.reason
    assert "sesame" not in attempt.reason
    assert service.tasks == {}


@pytest.mark.slow
def test_a_job_continues_when_the_service_answers_again(service: BatchService) -> None:
    service.faults["describejobs"] = [
        "refuse 403 ExpiredTokenException", "lose", "refuse 429 TooManyRequestsException"
    ]  # fmt: skip
    job, [attempt] = run(bash("one", "echo once"))
    assert (job.status, attempt.status) == (DONE, DONE)


def during(service: BatchService, action: Any, sign: Path | None = None) -> threading.Thread:
    """Call a function with the id of the first container when that runs, or has made a sign."""

    def act() -> None:
        until(lambda: any(task.started for task in service.tasks.values()))
        until(lambda: sign is None or sign.exists())
        action(next(iter(service.tasks)))

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_job_that_vanishes_is_lost_and_repeated(service: BatchService, tmp_path: Path) -> None:
    thread = during(service, service.forget, tmp_path / "once")
    job, attempts = run(bash("one", f"mkdir {tmp_path}/once && sleep 600; echo again"))
    thread.join()
    assert job.status == DONE, job.reason
    assert [attempt.status for attempt in attempts] == [LOST, DONE]
    assert "the attempt is lost" in log_of(job, attempts[0])


@pytest.mark.slow
def test_a_lost_machine_repeats_the_attempt_without_counting_it(
    service: BatchService, tmp_path: Path
) -> None:
    reason = "Host EC2 (instance i-1) terminated."
    thread = during(service, lambda job_id: service.interrupt(job_id, reason), tmp_path / "once")
    job, attempts = run(bash("one", f"mkdir {tmp_path}/once && sleep 600; echo again"))
    thread.join()
    assert job.status == DONE, job.reason
    assert [attempt.status for attempt in attempts] == [LOST, DONE]
    assert "AWS Batch lost the machine of the job: Host EC2" in log_of(job, attempts[0])


def test_a_job_that_another_user_terminates_is_a_failed_attempt(service: BatchService) -> None:
    thread = during(service, lambda job_id: service.interrupt(job_id, "no longer needed"))
    job, [attempt] = run(bash("one", "sleep 600"))
    thread.join()
    assert job.status == FAILED
    assert "AWS Batch ended the job: FAILED (no longer needed)" in log_of(job, attempt)
    assert attempt.fault != "memory"


@pytest.mark.slow
def test_more_memory_is_requested_after_a_lack_of_it(service: BatchService) -> None:
    # The containers of the tests have their memory as a limit of the address space.
    words = ("python", "-c", "print(len(bytearray(3 << 30)))")
    resources = Resources(cores=1, ram_gb=2.5)
    step = Step(
        name="one", kind="command", argv=words, resources=resources, retries=1, more_memory=2
    )
    job, attempts = run(step)
    assert job.status == DONE, job.reason
    assert [attempt.fault for attempt in attempts] == ["memory", ""]
    containers = [
        request["containerProperties"]
        for name, request in service.requests
        if name == "registerjobdefinition"
    ]
    sizes = [
        {each["type"]: each["value"] for each in container["resourceRequirements"]}
        for container in containers
    ]
    assert [size["MEMORY"] for size in sizes] == ["3072", "5120"]


def test_the_reason_of_a_container_that_was_ended_for_its_memory(service: BatchService) -> None:
    thread = during(
        service, lambda job_id: service.interrupt(job_id, "", batch_service.OUT_OF_MEMORY)
    )
    job, [attempt] = run(bash("one", "sleep 600"))
    thread.join()
    assert (job.status, attempt.fault, attempt.exit_code) == (FAILED, "memory", -9)
    assert "request more with resources.ram_gb, or set more_memory" in log_of(job, attempt)


def test_batch_reads_secrets_itself_and_logs_do_not_show_them(
    service: BatchService, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "correct-horse-battery"
    arn = batch_service.client("secretsmanager", moto).create_secret(
        Name="database", SecretString=value
    )["ARN"]
    monkeypatch.setenv("DATABASE_PASSWORD", value)
    step = bash("one", 'echo "got $DATABASE_PASSWORD"', secrets=("database/password",))
    job, [attempt] = run(step, secrets=[f"database/password={arn}"])
    assert job.status == DONE, job.reason
    log = log_of(job, attempt)
    assert "got " in log
    assert value not in log
    assert value not in json.dumps(service.requests)
    objects = batch_service.client("s3", moto)
    for entry in objects.list_objects_v2(Bucket="flights")["Contents"]:
        body = objects.get_object(Bucket="flights", Key=entry["Key"])["Body"].read()
        assert value.encode() not in body


@pytest.mark.slow
def test_scripts_and_folders_are_sent_once(
    service: BatchService, moto: str, tmp_path: Path
) -> None:
    root = tmp_path / "pipeline"
    (root / "steps").mkdir(parents=True)
    (root / "steps" / "tool.py").write_text("WORD = 'imported'\n")
    (root / "data.txt").write_text("read\n")
    (root / "steps" / "a.py").write_text(
        "import os, tool\nprint(tool.WORD, open('data.txt').read(), os.environ['CHUNK_ID'])\n"
    )
    step = Step(name="a", kind="python", path="steps/a.py", chunks=2)
    job, attempts = run(step, root=root, stage="folder")
    assert job.status == DONE, job.reason
    assert all("imported read" in log_of(job, attempt) for attempt in attempts)
    keys = [
        entry["Key"]
        for entry in batch_service.client("s3", moto).list_objects_v2(
            Bucket="flights", Prefix="jobs/content/"
        )["Contents"]
    ]
    before = len(keys)
    job, attempts = run(step, root=root, stage="folder")
    assert job.status == DONE, job.reason
    after = batch_service.client("s3", moto).list_objects_v2(
        Bucket="flights", Prefix="jobs/content/"
    )
    assert after["KeyCount"] == before


@pytest.mark.slow
def test_an_executed_notebook_comes_back(service: BatchService, tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "id": "a", "source": "print(6 * 7)", "metadata": {}, "outputs": [],
         "execution_count": None}
    ]  # fmt: skip
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    step = Step(
        name="a", kind="notebook", path="a.ipynb", output_path="out.ipynb",
        resources=Resources(cores=4, ram_gb=30),
    )  # fmt: skip
    job, attempts = run(step, root=tmp_path)
    assert job.status == DONE, (job.reason, log_of(job, attempts[-1]))
    assert "42" in (tmp_path / "out.ipynb").read_text()
    assert "hyperplane-notebook:" not in log_of(job, attempts[-1])


def attempt_command(folder: Path) -> AttemptCommand:
    above = folder / str(uuid.uuid4()) / "steps" / "000-one"
    above.mkdir(parents=True)
    command = AttemptCommand(("sleep", "600"), {}, ".", above / "attempt-1")
    command.file(".log").touch()
    return command


def create_runner(**options: Any) -> Any:
    resolved = registry.resolve_options("aws-batch", batch_service.options(**options))
    return registry.create_runner("aws-batch", dict(os.environ), resolved)


@pytest.mark.parametrize("fault", ["", "lose"])
def test_nothing_is_left_of_a_job_that_is_cancelled_while_it_waits(
    service: BatchService, tmp_path: Path, fault: str
) -> None:
    service.waiting_for = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
    service.faults["submitjob"] = [fault]
    command = attempt_command(tmp_path)

    async def work() -> None:
        runner = create_runner()
        process = await runner.start(command, bash("one", "true"), 1.0)
        assert await process.end(1.0) != 0
        await runner.close()

    asyncio.run(work())
    assert service.running() == []
    assert len(service.tasks) == 1


def test_a_submission_whose_id_was_not_stored_is_found_and_ended(
    service: BatchService, tmp_path: Path
) -> None:
    command = attempt_command(tmp_path)

    async def work() -> None:
        runner = create_runner()
        await runner.start(command, bash("one", "true"), 1.0)
        # As if the supervisor had been killed before the answer, and the request repeated.
        request = next(body for name, body in service.requests if name == "submitjob")
        await runner._get_client().create(request)
        name, queue = request["jobName"], request["jobQueue"]
        BatchJobId(name, queue, written=time.time()).write(command)
        assert len(service.running()) == 2
        await runner.reattach(command).end(1.0)
        await asyncio.to_thread(until, lambda: not service.running())
        await runner.close()

    asyncio.run(work())
    reasons = {task.reason for task in service.tasks.values()}
    assert reasons == {"second submission of the same attempt", "ended by hyperplane"}


def test_a_job_that_can_never_start_fails_with_the_reason(service: BatchService) -> None:
    service.waiting_for = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - not enough"
    job, [attempt] = run(bash("one", "true"))
    assert (job.status, attempt.exit_code) == (FAILED, 78)
    assert "AWS Batch can never start job" in log_of(job, attempt)
    assert service.running() == []


def test_the_check_reports_all_faults_at_once(service: BatchService) -> None:
    assert create_runner().unavailable_reason() == ""
    missing = "arn:aws:iam::123456789012:role/gone"
    reason = create_runner(
        queue="no-such-queue", staging="s3://no-such-bucket/x", job_role=missing
    ).unavailable_reason()
    assert "queue = 'no-such-queue': expected a job queue of AWS Batch in eu-west-1" in reason
    assert "staging = 's3://no-such-bucket/x': expected an existing bucket" in reason
    assert f"job_role = '{missing}': expected an existing role" in reason
    reason = create_runner(queue="ec2-jobs").unavailable_reason()
    assert reason == "platform = 'fargate': expected ec2, as the queue 'ec2-jobs' has"
    image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/flights:1"
    assert "expected an image of the registry" in create_runner(image=image).unavailable_reason()


def test_the_check_compares_steps_with_the_instances_of_the_queue(service: BatchService) -> None:
    runner = create_runner(queue="ec2-jobs", platform="ec2")
    assert runner.unavailable_reason() == ""
    fits = make_job(bash("a", "true", resources=Resources(cores=4, ram_gb=15))).pipeline
    assert runner.find_unsupported(fits) == []
    large = make_job(bash("a", "true", resources=Resources(cores=8, ram_gb=15))).pipeline
    [fault] = runner.find_unsupported(large)
    assert "whose instances have 4 vCPU with 16384 MiB" in str(fault)


def test_the_check_needs_credentials(
    service: BatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in batch_service.KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    reason = create_runner().unavailable_reason()
    assert reason.startswith("credentials: the credentials for Amazon cannot be used")
    assert "Unable to locate credentials" in reason


def test_a_dry_run_checks_the_service_and_shows_the_cost(
    service: BatchService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").write_text("true\n")
    (tmp_path / "p.yaml").write_text(
        "pipeline: {name: p, tasks: [{name: a, type: bash script, bash_script_path: a.sh}]}\n"
    )

    def dry_run(**options: str) -> Any:
        words = ["job", "submit", "p.yaml", "--runner", "aws-batch", "--dry-run"]
        for name, text in batch_service.options(**options).items():
            words += ["--runner-option", f"{name}={text}"]
        return CliRunner().invoke(app, words)

    result = dry_run()
    assert result.exit_code == 0, result.output
    assert "cost  step 'a': 1 vCPU, 2048 MiB in a container; cost unknown" in result.output
    result = dry_run(budget="1 core-hours")
    assert result.exit_code == 2
    assert "the most that the job may take" in " ".join(result.output.split())
    result = dry_run(queue="no-such-queue")
    assert result.exit_code == 2
    assert "expected a job queue of AWS Batch" in " ".join(result.output.split())
    assert service.count("submitjob") == 0
