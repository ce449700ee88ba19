"""Jobs on moto's EMR Serverless: lost answers, refusals, lost runs, sizes, and the check."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import emr_serverless_service
import pytest
from emr_serverless_service import EmrServerlessService
from job_cases import bash
from moto_proxy import client
from scale import FULL
from service_job_contract import (
    ServiceJobContract,
    attempt_command,
    during,
    log_of,
    shorten_aws_waits,
)
from services import until

from hyperplane.jobs import Resources
from hyperplane.jobs.runners import stored_output
from hyperplane.jobs.runners.emr_serverless.serverless_process import ServerlessProcess
from hyperplane.jobs.store.job_records import DONE

pytestmark = [pytest.mark.process, pytest.mark.service]


@pytest.fixture
def service(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmrServerlessService]:
    shorten_aws_waits(monkeypatch, ServerlessProcess)
    monkeypatch.setattr(stored_output, "LOG_SECONDS", 0.5)
    monkeypatch.setattr(stored_output, "LOG_PAUSE", 0.1)
    emr_serverless_service.create_roles(moto)
    folder = tmp_path / "drivers"
    folder.mkdir()
    service = EmrServerlessService(moto, folder)
    for name, text in emr_serverless_service.variables(moto, service.url).items():
        monkeypatch.setenv(name, text)
    TestServerlessJobs.application = service.create_application()
    yield service
    service.close()


@pytest.mark.skipif(not FULL, reason="what all runners of services share: at full scale")
class TestServerlessJobs(ServiceJobContract):
    runner: ClassVar[str] = "emr-serverless"
    title: ClassVar[str] = "EMR Serverless"
    create: ClassVar[str] = "StartJobRun"
    name_field: ClassVar[str] = "name"
    creations: ClassVar[int] = 4
    reading_faults: ClassVar[dict[str, list[str]]] = {
        "GetJobRun": [
            "refuse 400 ExpiredTokenException", "lose", "refuse 400 ThrottlingException"
        ]
    }  # fmt: skip
    cancelling_faults: ClassVar[dict[str, list[str]]] = {
        "CancelJobRun": ["refuse 400 ThrottlingException"]
    }
    lost_machine: ClassVar[str] = "Internal service error: the worker is gone"
    # 4096 MiB: 2 GB for the program, and 2 GiB for the JVM.
    cost: ClassVar[str] = "2 workers with 1 vCPU, 4096 MiB, 0.1515 USD for an hour (price of"
    wrong_option: ClassVar[tuple[str, str, str]] = (
        "staging", "s3://no-such-bucket/x", "expected an existing bucket"
    )  # fmt: skip
    application: ClassVar[str] = ""

    @classmethod
    def options(cls, **others: Any) -> dict[str, Any]:
        return emr_serverless_service.options(**{"application": cls.application, **others})

    @pytest.fixture
    def refusal(self) -> str:
        return "refuse 400 ThrottlingException"

    @pytest.fixture(autouse=True)
    def nothing_left(self, service: EmrServerlessService) -> Iterator[None]:
        """No driver is left at the end of a test."""
        yield
        until(lambda: not service.running())

    def content(self, service: Any) -> dict[str, Any]:
        objects = client("s3", service.moto)
        found = objects.list_objects_v2(Bucket="flights", Prefix="serverless/content/")
        return {entry["Key"]: entry["LastModified"] for entry in found["Contents"]}

    @pytest.mark.slow
    def test_an_executed_notebook_comes_back(
        self, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = emr_serverless_service.options(self.application, python="python3.11")
        monkeypatch.setattr(type(self), "options", staticmethod(lambda: options))
        super().test_an_executed_notebook_comes_back(service, tmp_path)

    def test_a_creation_whose_id_was_not_stored_is_found_and_ended(
        self, service: Any, tmp_path: Path
    ) -> None:
        """The token refuses the second start, and the first run is found by its name."""
        service.waiting_for = "workers"
        command = attempt_command(tmp_path)

        async def work() -> None:
            runner = create_runner()
            await runner.start(command, bash("one", "true"), 1.0)
            stored = runner.job_id_type.read(command)
            [request] = service.bodies("StartJobRun")
            request = {**request, "applicationId": self.application}  # it is part of the path
            assert await runner._get_client().create(request) == stored.id
            # As if the supervisor had been killed before the answer.
            unsent = type(stored)(stored.name, stored.application, written=stored.written)
            unsent.write(command)
            await runner.reattach(command).end(1.0)
            await runner.close()

        asyncio.run(work())
        assert service.running() == []
        assert len(service.ids()) == 1


run, create_runner = TestServerlessJobs.run, TestServerlessJobs.create_runner


@pytest.mark.slow
def test_the_next_worker_is_requested_after_a_lack_of_memory(
    service: EmrServerlessService,
) -> None:
    first = service.folder / "first"
    reason = "Driver exited: java.lang.OutOfMemoryError"
    thread = during(service, lambda job_id: service.interrupt(job_id, reason), first)
    text = f"mkdir {first} && sleep 600; true"
    resources = Resources(cores=1, ram_gb=6)
    job, attempts = run(bash("one", text, resources=resources, retries=1, more_memory=2))
    thread.join()
    assert job.status == DONE, job.reason
    assert [attempt.fault for attempt in attempts] == ["memory", ""]
    assert "request more with resources.ram_gb" in log_of(job, attempts[0])
    options = [
        body["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
        for body in service.bodies("StartJobRun")
    ]
    assert "spark.driver.memoryOverhead=7168m" in options[0]
    assert "spark.driver.memoryOverhead=13312m" in options[1]


@pytest.mark.slow
def test_the_check_reports_all_faults_at_once(service: EmrServerlessService) -> None:
    assert create_runner().unavailable_reason() == ""
    wheel = "s3://flights/no-such.whl"
    missing = "arn:aws:iam::123456789012:role/gone"
    reason = create_runner(
        application="none", role=missing, staging="s3://no-such-bucket/x", python_files=[wheel]
    ).unavailable_reason()
    assert "application = 'none': expected an application in eu-west-1" in reason
    assert "staging = 's3://no-such-bucket/x': expected an existing bucket" in reason
    assert f"role = '{missing}': expected an existing role" in reason
    assert f"python_files = '{wheel}': expected an existing object" in reason
    # A role of another service, such as of AWS Batch.
    steps = "arn:aws:iam::123456789012:role/steps"
    reason = create_runner(role=steps).unavailable_reason()
    assert "expected a role that emr-serverless.amazonaws.com may assume" in reason
