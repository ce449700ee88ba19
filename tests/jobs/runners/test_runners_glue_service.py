"""Jobs on moto's AWS Glue: lost answers, refusals, lost runs, machines, and the check."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import glue_service
import pytest
from glue_service import GlueService
from job_cases import bash
from runner_cases import make_job
from service_job_contract import (
    ServiceJobContract,
    attempt_command,
    during,
    log_of,
    shorten_aws_waits,
)

from hyperplane.jobs import Resources, Step
from hyperplane.jobs.runners.glue.glue_process import GlueProcess
from hyperplane.jobs.store.job_records import DONE, FAILED
from hyperplane.platforms.aws.errors import AwsRequestError

pytestmark = [pytest.mark.process, pytest.mark.service]
SPARK = {"job_type": "glueetl", "python_modules": ["ipykernel", "nbclient>=0.10"]}


@pytest.fixture
def service(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GlueService]:
    shorten_aws_waits(monkeypatch, GlueProcess)
    glue_service.create_role(moto)
    folder = tmp_path / "scripts"
    folder.mkdir()
    service = GlueService(moto, folder)
    for name, text in glue_service.variables(moto, service.url).items():
        monkeypatch.setenv(name, text)
    yield service
    service.close()


class TestGlueJobs(ServiceJobContract):
    runner: ClassVar[str] = "glue"
    title: ClassVar[str] = "AWS Glue"
    create: ClassVar[str] = "StartJobRun"
    name_field: ClassVar[str] = "JobName"
    creations: ClassVar[int] = 4
    reading_faults: ClassVar[dict[str, list[str]]] = {
        "GetJobRun": [
            "refuse 400 ExpiredTokenException", "lose", "refuse 400 ThrottlingException"
        ]
    }  # fmt: skip
    cancelling_faults: ClassVar[dict[str, list[str]]] = {
        "BatchStopJobRun": ["refuse 400 ThrottlingException"]
    }
    lost_machine: ClassVar[str] = "Internal service error: the worker is gone"
    cost: ClassVar[str] = "0.0625 DPU; cost unknown: no price of AWS Glue in eu-west-1"
    wrong_option: ClassVar[tuple[str, str, str]] = (
        "staging", "s3://no-such-bucket/x", "expected an existing bucket"
    )  # fmt: skip

    @staticmethod
    def options(**others: Any) -> dict[str, Any]:
        return glue_service.options(**others)

    @pytest.fixture
    def refusal(self) -> str:
        return "refuse 400 ThrottlingException"

    @pytest.fixture(autouse=True)
    def nothing_left(self, service: GlueService) -> Iterator[None]:
        """No job is left at the end of a test."""
        yield
        assert service.jobs() == []

    def content(self, service: Any) -> dict[str, Any]:
        objects = glue_service.client("s3", service.moto)
        found = objects.list_objects_v2(Bucket="flights", Prefix="glue/content/")
        return {entry["Key"]: entry["LastModified"] for entry in found["Contents"]}

    @pytest.mark.slow
    def test_an_executed_notebook_comes_back(
        self, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def options(**others: Any) -> dict[str, Any]:
            return glue_service.options(**SPARK, **others)

        monkeypatch.setattr(type(self), "options", staticmethod(options))
        super().test_an_executed_notebook_comes_back(service, tmp_path)

    @pytest.mark.slow
    @pytest.mark.parametrize("fault", ["", "lose"])
    def test_nothing_is_left_of_a_job_that_is_cancelled_while_it_waits(
        self, service: Any, tmp_path: Path, fault: str
    ) -> None:
        super().test_nothing_is_left_of_a_job_that_is_cancelled_while_it_waits(
            service, tmp_path, fault
        )

    def test_a_creation_whose_id_was_not_stored_is_found_and_ended(
        self, service: Any, tmp_path: Path
    ) -> None:
        """Glue refuses the second start, and the first run is found by the name of its job."""
        service.waiting_for = "waiting for resources"
        command = attempt_command(tmp_path)

        async def work() -> None:
            runner = create_runner()
            await runner.start(command, bash("one", "true"), 1.0)
            [job] = service.bodies("CreateJob")
            with pytest.raises(AwsRequestError) as caught:
                await runner._get_client().create(job)
            assert caught.value.code == "ConcurrentRunsExceededException"
            assert runner._get_client().errors.is_unconfirmed(caught.value)
            # As if the supervisor had been killed before the answer.
            stored = runner.job_id_type.read(command)
            type(stored)(stored.name, written=stored.written).write(command)
            await runner.reattach(command).end(1.0)
            await runner.close()

        asyncio.run(work())
        assert service.running() == []
        assert len(service.ids()) == 1


run, create_runner = TestGlueJobs.run, TestGlueJobs.create_runner


@pytest.mark.slow
def test_each_chunk_is_a_job_that_knows_its_item(service: GlueService) -> None:
    count = "$HYPERPLANE_SHARD_INDEX/$HYPERPLANE_SHARD_COUNT"
    text = f'echo "$CHUNK_ID {count} $ITEM $TZ"; python -c "import boto3"'
    step = bash("years", text, foreach=("2013", "it's 2014", "2015"))
    job, attempts = run(step, environ=["TZ=UTC"])
    assert job.status == DONE, job.reason
    logs = [log_of(job, attempt).strip() for attempt in sorted(attempts, key=lambda a: a.chunk)]
    assert logs == ["0 0/3 2013 UTC", "1 1/3 it's 2014 UTC", "2 2/3 2015 UTC"]
    assert len({body["Name"] for body in service.bodies("CreateJob")}) == 3
    # Besides polls, three requests to Glue for each attempt.
    assert [service.count(name) for name in ("CreateJob", "StartJobRun", "DeleteJob")] == [3] * 3
    assert service.jobs() == []


@pytest.mark.slow
def test_a_script_of_python_fails_with_its_exit_code(service: GlueService, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import sys\nprint('größer', file=sys.stderr)\nsys.exit(7)\n")
    job, [attempt] = run(Step(name="a", kind="python", path="a.py"), root=tmp_path)
    assert (job.status, attempt.exit_code) == (FAILED, 7)
    log = log_of(job, attempt)
    assert "größer" in log
    assert "AWS Glue ended the job" not in log
    [task] = service.tasks.values()
    assert task.reason == "RuntimeError: the program of the step has ended with exit code 7"


@pytest.mark.slow
def test_a_script_that_has_no_program_fails_with_the_message_of_glue(service: GlueService) -> None:
    objects = glue_service.client("s3", service.moto)
    job, [attempt] = run(bash("one", "true"))
    assert job.status == DONE
    for entry in objects.list_objects_v2(Bucket="flights", Prefix="glue/content/")["Contents"]:
        if b"def run_task" in objects.get_object(Bucket="flights", Key=entry["Key"])["Body"].read():
            objects.put_object(Bucket="flights", Key=entry["Key"], Body=b"changed")
            changed = entry["Key"]
    try:
        job, [attempt] = run(bash("one", "true"))
    finally:
        objects.delete_object(Bucket="flights", Key=changed)
    assert (job.status, attempt.exit_code) == (FAILED, 1)
    log = log_of(job, attempt)
    assert "has changed since the step was submitted" in log
    assert "AWS Glue ended the job: FAILED" in log


@pytest.mark.slow
def test_a_run_that_another_user_stops_is_a_failed_attempt(service: GlueService) -> None:
    thread = during(service, lambda job_id: service.terminate(job_id, "stopped"))
    job, [attempt] = run(bash("one", "sleep 600"))
    thread.join()
    assert job.status == FAILED
    assert "AWS Glue ended the job: STOPPED" in log_of(job, attempt)
    assert attempt.fault != "memory"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "ram_gb", "sizes"),
    [
        ({}, 0.9, [("MaxCapacity", 0.0625), ("MaxCapacity", 1)]),
        ({"job_type": "glueetl"}, 15, [("WorkerType", "G.1X"), ("WorkerType", "G.2X")]),
    ],
)
def test_the_next_machine_is_requested_after_a_lack_of_memory(
    service: GlueService, options: dict[str, Any], ram_gb: float, sizes: list[tuple[str, Any]]
) -> None:
    def interrupt(job_id: str) -> None:
        service.interrupt(job_id, glue_service.OUT_OF_MEMORY)

    first = service.folder / "first"
    thread = during(service, interrupt, first)
    resources = Resources(cores=0.25, ram_gb=ram_gb)
    step = bash(
        "one", f"mkdir {first} && sleep 600; true", resources=resources, retries=1, more_memory=2
    )
    job, attempts = run(step, **options)
    thread.join()
    assert job.status == DONE, job.reason
    assert [attempt.fault for attempt in attempts] == ["memory", ""]
    assert "request more with resources.ram_gb" in log_of(job, attempts[0])
    bodies = service.bodies("CreateJob")
    assert [(name, body[name]) for body, (name, _) in zip(bodies, sizes, strict=True)] == sizes


@pytest.mark.slow
def test_a_run_without_capacity_is_a_failure_that_may_be_retried(service: GlueService) -> None:
    reason = "Max concurrent job runs per account exceeded"
    thread = during(service, lambda job_id: service.interrupt(job_id, reason))
    job, [attempt] = run(bash("one", "sleep 600"))
    thread.join()
    assert (job.status, attempt.exit_code) == (FAILED, 75)
    assert f"FAILED ({reason}). The job can be retried" in log_of(job, attempt)


@pytest.mark.slow
def test_a_start_waits_for_other_runs_of_the_account(service: GlueService) -> None:
    service.faults["StartJobRun"] = ["refuse 400 ResourceNumberLimitExceededException"] * 2
    service.faults["CreateJob"] = ["lose"]
    job, [attempt] = run(bash("one", "true"))
    assert (job.status, attempt.status) == (DONE, DONE)
    assert service.count("StartJobRun") == 3
    assert len(service.ids()) == 1
    assert service.jobs() == []


@pytest.mark.slow
def test_the_check_reports_all_faults_at_once(service: GlueService) -> None:
    assert create_runner().unavailable_reason() == ""
    missing = "arn:aws:iam::123456789012:role/gone"
    wheel = "s3://flights/no-such.whl"
    reason = create_runner(
        staging="s3://no-such-bucket/x", role=missing, python_files=[wheel]
    ).unavailable_reason()
    assert "staging = 's3://no-such-bucket/x': expected an existing bucket" in reason
    assert f"role = '{missing}': expected an existing role" in reason
    assert f"python_files = '{wheel}': expected an existing object" in reason
    # A role of another service, such as of AWS Batch.
    steps = "arn:aws:iam::123456789012:role/steps"
    reason = create_runner(role=steps).unavailable_reason()
    assert f"role = '{steps}': expected a role that glue.amazonaws.com may assume" in reason
    service.faults["GetJobs"] = ["refuse 400 AccessDeniedException"]
    assert "glue: Amazon answered 400 AccessDeniedException" in create_runner().unavailable_reason()


def test_the_check_needs_credentials(service: GlueService, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in glue_service.KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    reason = create_runner().unavailable_reason()
    assert reason.startswith("credentials: the credentials for Amazon cannot be used")


def test_a_pipeline_that_fits_is_accepted(service: GlueService) -> None:
    runner = create_runner(job_type="glueetl")
    pipeline = make_job(bash("a", "true", resources=Resources(cores=32, ram_gb=128))).pipeline
    assert runner.find_unsupported(pipeline) == []
