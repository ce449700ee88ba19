"""Jobs on moto's AWS Batch: arrays, secrets, lost answers, refusals, lost jobs, and the check."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import batch_service
import boto3
import pytest
from batch_service import BatchService
from container_service import send
from job_cases import bash
from runner_cases import make_job
from service_job_contract import ServiceJobContract, during, log_of, shorten_aws_waits

from hyperplane.jobs import Resources, Step
from hyperplane.jobs.runners import retry_time
from hyperplane.jobs.runners.aws_batch import batch_process
from hyperplane.jobs.store.job_records import DONE, FAILED
from hyperplane.platforms.aws.account_check import check_bucket
from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.object_staging import parse_staging

pytestmark = [pytest.mark.process, pytest.mark.service]


@pytest.fixture
def service(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchService]:
    shorten_aws_waits(monkeypatch, batch_process.BatchProcess)
    monkeypatch.setattr(batch_process, "NEVER_STARTS_SECONDS", 0.5)
    folder = tmp_path / "containers"
    folder.mkdir()
    service = BatchService(moto, folder)
    for name, text in batch_service.variables(moto, service.url).items():
        monkeypatch.setenv(name, text)
    yield service
    service.close()


class TestAwsBatchJobs(ServiceJobContract):
    runner: ClassVar[str] = "aws-batch"
    title: ClassVar[str] = "AWS Batch"
    options = staticmethod(batch_service.options)
    create: ClassVar[str] = "submitjob"
    name_field: ClassVar[str] = "jobName"
    creations: ClassVar[int] = 2
    reading_faults: ClassVar[dict[str, list[str]]] = {
        "describejobs": [
            "refuse 403 ExpiredTokenException", "lose", "refuse 429 TooManyRequestsException"
        ]
    }  # fmt: skip
    cancelling_faults: ClassVar[dict[str, list[str]]] = {}
    lost_machine: ClassVar[str] = "Host EC2 (instance i-1) terminated."
    cost: ClassVar[str] = "1 vCPU, 2048 MiB in a container; cost unknown"
    wrong_option: ClassVar[tuple[str, str, str]] = (
        "queue", "no-such-queue", "expected a job queue of AWS Batch"
    )  # fmt: skip

    @pytest.fixture
    def refusal(self) -> str:
        return "refuse 429 TooManyRequestsException"

    def content(self, service: Any) -> dict[str, Any]:
        objects = batch_service.client("s3", service.moto)
        found = objects.list_objects_v2(Bucket="flights", Prefix="jobs/content/")
        return {entry["Key"]: entry["LastModified"] for entry in found["Contents"]}

    @pytest.mark.slow
    def test_only_failed_chunks_are_submitted_again(self, service: Any, tmp_path: Path) -> None:
        super().test_only_failed_chunks_are_submitted_again(service, tmp_path)
        sizes = [body.get("arrayProperties") for body in service.bodies("submitjob")]
        assert sizes == [{"size": 3}, None]

    def test_a_creation_whose_id_was_not_stored_is_found_and_ended(
        self, service: Any, tmp_path: Path
    ) -> None:
        super().test_a_creation_whose_id_was_not_stored_is_found_and_ended(service, tmp_path)
        reasons = {task.reason for task in service.tasks.values()}
        assert reasons == {"second submission of the same attempt", "ended by hyperplane"}


run, create_runner = TestAwsBatchJobs.run, TestAwsBatchJobs.create_runner


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


@pytest.mark.parametrize("region", [batch_service.REGION, "us-east-1"])
def test_a_missing_bucket_is_created_by_the_first_upload_if_asked(
    service: BatchService, region: str
) -> None:
    bucket = f"new-{region}"
    refused = create_runner(staging=f"s3://{bucket}/x").unavailable_reason()
    assert "or set the option create_bucket=true" in refused
    session = AwsSession(region, None, batch_service.variables(service.moto, service.url))
    folder = parse_staging(f"s3://{bucket}/x")
    with pytest.raises(AwsRequestError, match="NoSuchBucket"):
        S3Staging(session, folder).put(folder.key("a"), b"1")
    assert check_bucket(session, f"s3://{bucket}/x", create_bucket=True) == []
    key = S3Staging(session, folder, create_bucket=True).upload_content(b"1", ".py")
    objects = boto3.client(
        "s3", endpoint_url=service.moto, region_name=region,
        aws_access_key_id="tester", aws_secret_access_key="sesame-sesame",
    )  # fmt: skip
    assert objects.get_object(Bucket=bucket, Key=key)["Body"].read() == b"1"
    place = objects.get_bucket_location(Bucket=bucket)["LocationConstraint"]
    assert place == (None if region == "us-east-1" else region)


class Quotas(BaseHTTPRequestHandler):
    """Service Quotas with the quota of a new account for Fargate, and none for EC2."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["X-Amz-Target"] == "ServiceQuotasV20190624.GetServiceQuota"
        if body == {"ServiceCode": "fargate", "QuotaCode": "L-3032A538"}:
            send(self, 200, json.dumps({"Quota": {"Value": 6.0}}).encode())
        else:
            send(self, 400, b'{"__type": "AccessDeniedException", "message": "no"}')

    def log_message(self, *arguments: Any) -> None:
        """Write nothing."""


def test_a_step_with_more_cores_than_the_quota_is_refused(
    service: BatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = HTTPServer(("127.0.0.1", 0), Quotas)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_SERVICE_QUOTAS", address)
        runner = create_runner()
        assert runner.unavailable_reason() == ""
        assert runner.describe_quota() == [
            "at most 6 vCPUs of Fargate at once in this account and region"
        ]
        step = bash("a", "true", resources=Resources(cores=8, ram_gb=32))
        [fault] = runner.find_unsupported(make_job(step).pipeline)
        assert "at most 6 vCPU, the quota of the account, in fargate-nodes" in str(fault)
        other = create_runner(queue="ec2-jobs", platform="ec2")
        [line] = other.describe_quota()
        assert line.startswith("unknown number of vCPUs of standard on-demand instances of EC2: ")
        assert "AccessDeniedException" in line
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_check_needs_credentials(
    service: BatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in batch_service.KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    reason = create_runner().unavailable_reason()
    assert reason.startswith("credentials: the credentials for Amazon cannot be used")
    assert "Unable to locate credentials" in reason
