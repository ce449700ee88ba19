"""Jobs on moto's EMR: lost answers, refusals, lost runs, clusters of users, and the check."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import emr_service
import pytest
from emr_service import EmrService
from job_cases import bash
from moto_proxy import client
from runner_cases import make_job
from scale import FULL
from service_job_contract import (
    ServiceJobContract,
    attempt_command,
    during,
    log_of,
    shorten_aws_waits,
)
from services import until

from hyperplane.jobs import Resources, Step
from hyperplane.jobs.runners import stored_output
from hyperplane.jobs.runners.emr.emr_process import EmrProcess
from hyperplane.jobs.store.job_records import DONE, FAILED

pytestmark = [pytest.mark.process, pytest.mark.service]
NOTEBOOKS = {"python": "python3.11", "python_modules": ["ipykernel", "nbclient>=0.10"]}


@pytest.fixture
def service(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmrService]:
    shorten_aws_waits(monkeypatch, EmrProcess)
    monkeypatch.setattr(stored_output, "LOG_SECONDS", 0.5)
    monkeypatch.setattr(stored_output, "LOG_PAUSE", 0.1)
    emr_service.create_roles(moto)
    folder = tmp_path / "steps"
    folder.mkdir()
    service = EmrService(moto, folder)
    for name, text in emr_service.variables(moto, service.url).items():
        monkeypatch.setenv(name, text)
    yield service
    service.close()


@pytest.mark.skipif(not FULL, reason="what all runners of services share: at full scale")
class TestEmrJobs(ServiceJobContract):
    runner: ClassVar[str] = "emr"
    title: ClassVar[str] = "Amazon EMR"
    create: ClassVar[str] = "RunJobFlow"
    name_field: ClassVar[str] = "Name"
    creations: ClassVar[int] = 4
    reading_faults: ClassVar[dict[str, list[str]]] = {
        "ListSteps": [
            "refuse 400 ExpiredTokenException", "lose", "refuse 400 ThrottlingException"
        ],
        "DescribeCluster": ["lose"],
    }  # fmt: skip
    cancelling_faults: ClassVar[dict[str, list[str]]] = {
        "TerminateJobFlows": ["refuse 400 ThrottlingException"]
    }
    lost_machine: ClassVar[str] = "Internal error: the machine is gone"
    cost: ClassVar[str] = (
        "a cluster of 2 m5.xlarge; cost unknown: no price of m5.xlarge with EMR in eu-west-1"
    )
    wrong_option: ClassVar[tuple[str, str, str]] = (
        "staging", "s3://no-such-bucket/x", "expected an existing bucket"
    )  # fmt: skip

    @staticmethod
    def options(**others: Any) -> dict[str, Any]:
        return emr_service.options(**others)

    @pytest.fixture
    def refusal(self) -> str:
        return "refuse 400 ThrottlingException"

    @pytest.fixture(autouse=True)
    def nothing_left(self, service: EmrService) -> Iterator[None]:
        """No process of a step is left at the end of a test."""
        yield
        until(lambda: not service.running())

    def content(self, service: Any) -> dict[str, Any]:
        objects = client("s3", service.moto)
        found = objects.list_objects_v2(Bucket="flights", Prefix="emr/content/")
        return {entry["Key"]: entry["LastModified"] for entry in found["Contents"]}

    @pytest.mark.slow
    def test_an_executed_notebook_comes_back(
        self, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def options(**others: Any) -> dict[str, Any]:
            return emr_service.options(**NOTEBOOKS, **others)

        monkeypatch.setattr(type(self), "options", staticmethod(options))
        super().test_an_executed_notebook_comes_back(service, tmp_path)


run, create_runner = TestEmrJobs.run, TestEmrJobs.create_runner


@pytest.mark.slow
def test_each_chunk_is_a_cluster_that_knows_its_item(service: EmrService) -> None:
    count = "$HYPERPLANE_SHARD_INDEX/$HYPERPLANE_SHARD_COUNT"
    text = f'echo "$CHUNK_ID {count} $ITEM $TZ"; python -c "import boto3"'
    step = bash("years", text, foreach=("2013", "it's 2014", "2015"))
    job, attempts = run(step, environ=["TZ=UTC"])
    assert job.status == DONE, job.reason
    logs = [log_of(job, attempt).strip() for attempt in sorted(attempts, key=lambda a: a.chunk)]
    assert logs == ["0 0/3 2013 UTC", "1 1/3 it's 2014 UTC", "2 2/3 2015 UTC"]
    assert len({body["Name"] for body in service.bodies("RunJobFlow")}) == 3


@pytest.mark.slow
def test_a_script_of_python_fails_with_its_exit_code(service: EmrService, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import sys\nprint('größer', file=sys.stderr)\nsys.exit(7)\n")
    job, [attempt] = run(Step(name="a", kind="python", path="a.py"), root=tmp_path)
    assert (job.status, attempt.exit_code) == (FAILED, 7)
    log = log_of(job, attempt)
    assert "größer" in log
    assert "Amazon EMR ended the job" not in log


@pytest.mark.slow
def test_steps_are_added_to_a_cluster_of_the_user(service: EmrService, tmp_path: Path) -> None:
    cluster = service.start_cluster()
    text = f'if [ "$CHUNK_ID" = 1 ] && mkdir {tmp_path}/once; then exit 75; fi; echo "$CHUNK_ID"'
    service.faults["AddJobFlowSteps"] = ["lose", "", "refuse 400 ThrottlingException"]
    job, attempts = run(bash("years", text, chunks=3, retries=1), cluster=cluster)
    assert job.status == DONE, job.reason
    assert sorted(attempt.chunk for attempt in attempts) == [0, 1, 1, 2]
    # The lost answer is found by the name of the step, and the refused request sent again.
    assert service.count("AddJobFlowSteps") == 5
    assert len(service.ids()) == 4
    assert service.count("TerminateJobFlows") == service.count("RunJobFlow") == 0
    # Steps of a cluster are read together.
    assert all(len(body.get("StepIds", [])) <= 10 for body in service.bodies("ListSteps"))


@pytest.mark.slow
def test_a_step_that_is_cancelled_leaves_no_process(service: EmrService, tmp_path: Path) -> None:
    cluster = service.start_cluster()
    text = f"cd {tmp_path}; echo $$ > draft; mv draft id; sleep 600"
    command = attempt_command(tmp_path, "bash", "-c", text)

    async def work() -> None:
        runner = create_runner(cluster=cluster)
        step = bash("one", "true")
        process = await runner.start(command, step, 1.0)
        await asyncio.to_thread(until, (tmp_path / "id").exists)
        assert await process.end(1.0) == 1
        await runner.close()

    asyncio.run(work())
    assert service.bodies("CancelSteps")[0]["StepCancellationOption"] == "TERMINATE_PROCESS"
    number = int((tmp_path / "id").read_text())
    until(lambda: not Path(f"/proc/{number}").exists())


@pytest.mark.slow
def test_a_bootstrap_action_that_fails_is_in_the_log(service: EmrService) -> None:
    service.waiting_for = "a machine"
    reason = {"Code": "BOOTSTRAP_FAILURE", "Message": "bootstrap action 1 returned 127"}

    def act() -> None:
        until(service.ids)
        service.kill(service.ids()[0], json.dumps(reason))

    thread = threading.Thread(target=act)
    thread.start()
    job, [attempt] = run(bash("one", "true"))
    thread.join()
    assert job.status == FAILED
    assert "bootstrap action 1 returned 127" in log_of(job, attempt)


@pytest.mark.slow
def test_the_next_machine_is_requested_after_a_lack_of_memory(service: EmrService) -> None:
    def interrupt(job_id: str) -> None:
        service.interrupt(job_id, "java.lang.OutOfMemoryError: Java heap space")

    first = service.folder / "first"
    thread = during(service, interrupt, first)
    resources = Resources(cores=1, ram_gb=9)
    text = f"mkdir {first} && sleep 600; true"
    job, attempts = run(bash("one", text, resources=resources, retries=1, more_memory=2))
    thread.join()
    assert job.status == DONE, job.reason
    assert [attempt.fault for attempt in attempts] == ["memory", ""]
    assert "request more with resources.ram_gb" in log_of(job, attempts[0])
    types = [
        body["Instances"]["InstanceGroups"][0]["InstanceType"]
        for body in service.bodies("RunJobFlow")
    ]
    assert types == ["m5.xlarge", "r5.xlarge"]


@pytest.mark.slow
def test_the_check_reports_all_faults_at_once(service: EmrService) -> None:
    assert create_runner().unavailable_reason() == ""
    wheel = "s3://flights/no-such.whl"
    reason = create_runner(
        staging="s3://no-such-bucket/x",
        service_role="gone",
        instance_profile="gone",
        python_files=[wheel],
        bootstrap_actions=["s3://flights/no-such.sh x"],
        release="emr-9.9.9",
    ).unavailable_reason()
    assert "staging = 's3://no-such-bucket/x': expected an existing bucket" in reason
    assert "service_role = 'gone': expected an existing role" in reason
    assert "instance_profile = 'gone': expected an existing instance profile" in reason
    assert f"python_files = '{wheel}': expected an existing object" in reason
    assert "bootstrap_actions = 's3://flights/no-such.sh': expected an existing object" in reason
    assert "release = 'emr-9.9.9': expected a release of EMR" in reason
    # The role of the machines.
    reason = create_runner(service_role=emr_service.PROFILE).unavailable_reason()
    assert "expected a role that elasticmapreduce.amazonaws.com may assume" in reason
    service.faults["ListClusters"] = ["refuse 400 AccessDeniedException"]
    assert "emr: Amazon answered 400 AccessDeniedException" in create_runner().unavailable_reason()


@pytest.mark.slow
def test_a_cluster_that_does_not_run_is_refused(service: EmrService) -> None:
    cluster = service.start_cluster()
    assert create_runner(cluster=cluster).unavailable_reason() == ""
    client("emr", service.moto).terminate_job_flows(JobFlowIds=[cluster])
    reason = create_runner(cluster=cluster).unavailable_reason()
    assert f"cluster = '{cluster}': expected a cluster that runs; it is TERMINATED" in reason
    reason = create_runner(cluster="j-NONE").unavailable_reason()
    assert "cluster = 'j-NONE': expected a cluster of EMR in eu-west-1" in reason


def test_a_pipeline_that_fits_is_accepted(service: EmrService) -> None:
    runner = create_runner()
    pipeline = make_job(bash("a", "true", resources=Resources(cores=32, ram_gb=250))).pipeline
    assert runner.find_unsupported(pipeline) == []
