"""Jobs on a Cloud Run for tests: chunks, secrets, lost answers, taken names, and the check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import cloud_run_service
import google_service
import pytest
from cloud_run_service import CloudRunService
from job_cases import bash
from service_job_contract import ServiceJobContract, attempt_command, during, log_of
from services import until

from hyperplane.jobs import Resources
from hyperplane.jobs.runners.cloud_run import cloud_run_process
from hyperplane.jobs.store.job_records import DONE, FAILED, LOST
from hyperplane.platforms.gcp.errors import GcpRequestError

pytestmark = [pytest.mark.process, pytest.mark.service]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudRunService]:
    google_service.speed_up(monkeypatch, cloud_run_process.CloudRunProcess)
    folder = tmp_path / "cloud-run"
    folder.mkdir()
    with cloud_run_service.running(folder) as service:
        for name, text in google_service.variables(service).items():
            monkeypatch.setenv(name, text)
        yield service
        assert list(service.jobs) == service.foreign  # all others were deleted


class TestCloudRunJobs(ServiceJobContract):
    runner: ClassVar[str] = "cloud-run"
    title: ClassVar[str] = "Cloud Run"
    options = staticmethod(google_service.options)
    create: ClassVar[str] = "jobs.create"
    name_field: ClassVar[str] = "jobId"
    creations: ClassVar[int] = 4
    reading_faults: ClassVar[dict[str, list[str]]] = {
        "executions.get": ["refuse 503", "lose", "refuse 429"],
        "tasks.list": ["refuse 503"],
        "entries.list": ["refuse 503", "lose", "refuse 429"],
        "jobs.delete": ["refuse 503", "lose"],
    }
    cancelling_faults: ClassVar[dict[str, list[str]]] = {
        "executions.cancel": ["refuse 503", "lose"]
    }
    lost_machine: ClassVar[str] = cloud_run_service.INTERNAL
    cost: ClassVar[str] = "1 vCPU, 1908 MiB in a container, 0.0782 USD for an hour"
    wrong_option: ClassVar[tuple[str, str, str]] = (
        "staging", "gs://no-such-bucket", "expected an existing bucket"
    )  # fmt: skip

    @pytest.fixture(params=["refuse 429", "refuse 403 rateLimitExceeded"])
    def refusal(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def content(self, service: Any) -> dict[str, Any]:
        folder = service.buckets / "flights/jobs/content"
        return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}

    def test_a_creation_whose_id_was_not_stored_is_found_and_ended(
        self, service: Any, tmp_path: Path
    ) -> None:
        """A repeated creation is refused: the name is that of the first."""
        service.waiting_for = "containers"
        command = attempt_command(tmp_path)

        async def work() -> None:
            runner = self.create_runner()
            await runner.start(command, bash("one", "true"), 1.0)
            [body] = service.bodies(self.create)
            request = {"jobId": body.pop("jobId"), "job": body}
            with pytest.raises(GcpRequestError, match="already exists"):
                await runner._get_client().create(request)
            stored = runner.job_id_type.read(command)
            replace(stored, id="", written=time.time()).write(command)
            await runner.reattach(command).end(1.0)
            await runner.close()

        asyncio.run(work())
        assert len(service.ids()) == 1
        assert service.running() == []


run, create_runner = TestCloudRunJobs.run, TestCloudRunJobs.create_runner


@pytest.mark.slow
def test_each_chunk_is_a_job_and_knows_its_index(service: CloudRunService) -> None:
    text = (
        'echo "$CLOUD_RUN_TASK_INDEX/$CLOUD_RUN_TASK_COUNT $HYPERPLANE_SHARD_INDEX $ITEM"; '
        "python -c 'import hyperplane; print(hyperplane.shard().idx)'"
    )
    job, attempts = run(bash("years", text, foreach=("2013", "it's 2014")), send_package=True)
    assert job.status == DONE, [log_of(job, attempt) for attempt in attempts]
    logs = [log_of(job, attempt).strip() for attempt in sorted(attempts, key=lambda a: a.chunk)]
    assert logs == ["0/2 0 2013\n0", "1/2 1 it's 2014\n1"]
    bodies = service.bodies("jobs.create")
    assert {body["labels"]["hyperplane-job"] for body in bodies} == {job.id}
    assert {body["jobId"] for body in bodies} == {
        body["labels"]["hyperplane-attempt"] for body in bodies
    }


@pytest.mark.slow
def test_secrets_are_read_by_the_service_and_masked(
    service: CloudRunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "sesame-sesame")
    step = bash("one", "echo $DATABASE_PASSWORD", secrets=("database/password",))
    job, [attempt] = run(step, secrets=["database/password=flights-database"])
    assert job.status == DONE, job.reason
    assert "sesame" not in log_of(job, attempt)
    assert "sesame" not in str(service.bodies("jobs.create"))
    manifests = (service.buckets / "flights/jobs/attempts").glob("*.json")
    assert not any("sesame" in file.read_text() for file in manifests)


@pytest.mark.slow
def test_a_larger_container_is_used_after_a_lack_of_memory(
    service: CloudRunService, tmp_path: Path
) -> None:
    message = cloud_run_service.OUT_OF_MEMORY
    thread = during(service, lambda name: service.interrupt(name, message), tmp_path / "once")
    step = bash(
        "one", f"mkdir {tmp_path}/once && sleep 600; echo again", retries=1, more_memory=2,
        resources=Resources(cores=1, ram_gb=4),
    )  # fmt: skip
    job, attempts = run(step)
    thread.join()
    assert job.status == DONE, job.reason
    assert [(attempt.fault, attempt.exit_code) for attempt in attempts] == [("memory", -9), ("", 0)]
    assert "request more with resources.ram_gb, or set more_memory" in log_of(job, attempts[0])
    limits = [
        body["template"]["template"]["containers"][0]["resources"]["limits"]
        for body in service.bodies("jobs.create")
    ]
    assert limits == [{"cpu": "1", "memory": "3815Mi"}, {"cpu": "2", "memory": "7630Mi"}]


@pytest.mark.slow
def test_a_name_that_another_user_has_is_left_alone(
    service: CloudRunService, tmp_path: Path
) -> None:
    # As if the job of another user had the name of the first attempt.
    command = attempt_command(tmp_path, "echo", "ours")
    other = attempt_command(tmp_path / "other", "sleep", "600")
    service.waiting_for = "containers"

    async def work() -> int | None:
        runner = create_runner()
        await runner.start(other, bash("one", "true"), 1.0)
        [body] = service.bodies("jobs.create")
        request = {"jobId": body.pop("jobId"), "job": body}
        job_id = runner.job_id_type(request["jobId"], command.attempt_prefix.parents[2].name)
        await runner._submitter._create([command], [job_id], request)
        code: int | None = await runner.reattach(command).wait()
        await runner.close()
        return code

    assert asyncio.run(work()) is None
    assert "the attempt is lost" in command.file(".log").read_text()
    service.foreign = service.running()
    assert len(service.foreign) == 1
    assert service.count("executions.cancel") == service.count("jobs.delete") == 0


@pytest.mark.slow
def test_an_execution_that_another_user_deletes_is_lost(
    service: CloudRunService, tmp_path: Path
) -> None:
    def delete(name: str) -> None:
        with service._lock:
            job = service.jobs[name]
            job.execution = {"completionTime": "", "name": "gone"}
            job.description["terminalCondition"] = {"state": "CONDITION_SUCCEEDED"}

    thread = during(service, delete, tmp_path / "once")
    job, attempts = run(bash("one", f"mkdir {tmp_path}/once && sleep 600; echo again"))
    thread.join()
    assert job.status == DONE, job.reason
    assert [attempt.status for attempt in attempts] == [LOST, DONE]


@pytest.mark.slow
def test_a_job_that_another_user_cancels_is_a_failed_attempt(service: CloudRunService) -> None:
    def cancel(name: str) -> None:
        service.jobs[name].cancelled = True
        service.interrupt(name, "")

    thread = during(service, cancel)
    job, [attempt] = run(bash("one", "sleep 600"))
    thread.join()
    assert job.status == FAILED
    text = "Cloud Run ended the job: CANCELLED (Cancelled by the user.)"
    assert text in log_of(job, attempt)
    assert attempt.fault != "memory"


def test_a_job_whose_image_cannot_be_read_fails_for_good(service: CloudRunService) -> None:
    def fail(name: str) -> None:
        service.jobs[name].execution = {"completionTime": "", "name": "none"}
        service.jobs[name].description["terminalCondition"] = {
            "state": "CONDITION_FAILED", "reason": "CONTAINER_MISSING", "message": "no such image"
        }  # fmt: skip

    service.waiting_for = "containers"

    async def work() -> int | None:
        runner = create_runner()
        process = await runner.start(command, bash("one", "true"), 1.0)
        fail(service.ids()[0])
        code: int | None = await process.wait()
        await runner.close()
        return code

    command = attempt_command(service.folder)
    assert asyncio.run(work()) == 78
    assert "FAILED (no such image)" in command.file(".log").read_text()


@pytest.mark.slow
def test_a_job_that_may_not_be_deleted_is_named_in_the_log(service: CloudRunService) -> None:
    service.faults["jobs.delete"] = ["refuse 403"]
    job, [attempt] = run(bash("one", "echo once"))
    assert (job.status, attempt.exit_code) == (DONE, 0)
    assert "delete it with: gcloud run jobs delete hyperplane-" in log_of(job, attempt)
    service.foreign = list(service.jobs)
    assert len(service.foreign) == 1


def test_the_next_supervisor_deletes_a_job_whose_end_is_recorded(
    service: CloudRunService, tmp_path: Path
) -> None:
    command = attempt_command(tmp_path, "true")

    async def work() -> int | None:
        runner = create_runner()
        await runner.start(command, bash("one", "true"), 1.0)
        # As if the supervisor had been killed after it recorded the end.
        command.file(".exit").write_text("0")
        await asyncio.to_thread(until, lambda: not service.running())
        assert len(service.jobs) == 1
        code: int | None = await runner.reattach(command).wait()
        await runner.close()
        return code

    assert asyncio.run(work()) == 0


def test_the_check_reports_all_faults_at_once(service: CloudRunService) -> None:
    image, account = f"{google_service.REGISTRY}:1", google_service.ACCOUNT
    assert create_runner(image=image, service_account=account).unavailable_reason() == ""
    service.missing = {"run.jobs.create", "logging.logEntries.list"}
    reason = create_runner(
        image=image.replace(":1", ":2"), staging="gs://no-such-bucket/x",
        service_account=account.replace("steps", "gone"),
    ).unavailable_reason()  # fmt: skip
    for text in (
        "a project in which you have logging.logEntries.list, run.jobs.create",
        "expected an existing bucket",
        "expected an existing service account",
        "expected an image of the registry",
    ):
        assert text in reason
    assert len(reason.splitlines()) == 4
    service.missing = set()
    service.faults["jobs.list"] = ["refuse 403 SERVICE_DISABLED"]
    reason = create_runner().unavailable_reason()
    assert (
        "a project that uses Cloud Run; enable it with: gcloud services enable run.goog" in reason
    )


def test_the_service_checks_a_job_that_is_not_created(service: CloudRunService) -> None:
    reason = create_runner(secrets=["TOKEN=gone:2"]).unavailable_reason()
    assert "settings: a job with them is refused: Google answered 400" in reason
    assert "Secret gone was not found" in reason
    assert create_runner(secrets=["TOKEN=flights-database"]).unavailable_reason() == ""
    assert service.jobs == {}
