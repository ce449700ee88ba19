"""States of AWS Batch jobs and queues, and uploads, with recorded answers in place of a service."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest
from botocore.parsers import ResponseParserError

from hyperplane.platforms import object_staging
from hyperplane.platforms.aws.batch import BatchApi
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsRequestError, is_unconfirmed
from hyperplane.platforms.aws.job_status import parse_job
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.aws.service_check import check_service
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.spec.settings import AwsBatchSettings


class RecordedSession:
    """Answers requests from a table: operation -> answer, or a function of the request."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.requests = answers, list[tuple[str, dict[str, Any]]]()

    def region(self) -> str:
        return "eu-west-1"

    def call(self, service: str, operation: str, **request: Any) -> Any:
        self.requests.append((operation, request))
        answer = self.answers.get(operation, {})
        return answer(**request) if callable(answer) else answer

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.requests)


def environment(name: str, state: str, status: str) -> dict[str, Any]:
    return {
        "computeEnvironmentName": name, "state": state, "status": status, "statusReason": "why",
        "computeResources": {"type": "EC2", "maxvCpus": 64},
    }  # fmt: skip


def check_queue(state: str, status: str, *environments: dict[str, Any]) -> tuple[list[str], int]:
    order = [{"computeEnvironment": each["computeEnvironmentName"]} for each in environments]
    queue = {"state": state, "status": status, "computeEnvironmentOrder": order}
    session: Any = RecordedSession(
        describe_job_queues={"jobQueues": [queue]},
        describe_compute_environments={"computeEnvironments": list(environments)},
    )
    settings = AwsBatchSettings(queue="nightly", image="i", staging="s3://bucket/x")
    report = check_service(session, settings)
    return [str(fault) for fault in report.faults], len(report.environments)


def test_a_queue_that_starts_jobs_is_accepted() -> None:
    works = environment("one", "ENABLED", "VALID")
    disabled = environment("two", "DISABLED", "VALID")
    assert check_queue("ENABLED", "VALID", works, disabled) == ([], 1)
    assert check_queue("ENABLED", "UPDATING", works) == ([], 1)
    assert check_queue("ENABLED", "VALID", environment("one", "ENABLED", "UPDATING")) == ([], 1)


def test_a_queue_that_starts_no_jobs_is_refused() -> None:
    disabled = environment("two", "DISABLED", "VALID")
    invalid = environment("three", "ENABLED", "INVALID")
    [fault], usable = check_queue("ENABLED", "VALID", disabled, invalid)
    assert "two is DISABLED and VALID: why; three is ENABLED and INVALID: why" in fault
    assert usable == 0
    [fault], _ = check_queue("DISABLED", "VALID", environment("one", "ENABLED", "VALID"))
    assert "expected an enabled queue; it is DISABLED and VALID" in fault


@pytest.mark.parametrize(
    ("reason", "container", "lost"),
    [
        ("Host EC2 (instance i-1) terminated.", {"exitCode": 137}, True),
        ("Your Spot Task was interrupted.", {}, True),
        ("Task failed to start", {"reason": "DockerTimeoutError: Could not transition"}, True),
        ("Task failed to start", {"reason": "CannotPullContainerError: not found"}, False),
        ("Task failed to start", {"reason": "ResourceInitializationError: no role"}, False),
        ("", {"reason": "Timeout waiting for network interface provisioning to complete"}, True),
        ("Essential container in task exited", {"exitCode": 1}, False),
        ("x", {"exitCode": 1, "reason": "DockerTimeoutError: while it was stopped"}, False),
    ],
)
def test_jobs_whose_machine_was_lost(reason: str, container: dict[str, Any], lost: bool) -> None:
    job = {"status": "FAILED", "statusReason": reason, "container": container}
    assert parse_job(job).is_lost == lost


def test_content_is_uploaded_again_when_it_is_older_than_a_day() -> None:
    age = 0.0

    def head_object(**request: Any) -> dict[str, Any]:
        at = datetime.datetime.fromtimestamp(time.time() - age, datetime.UTC)
        return {"LastModified": at}

    def upload(**answers: Any) -> RecordedSession:
        session: Any = RecordedSession(**answers)
        staging = S3Staging(session, parse_staging("s3://bucket/x"))
        assert staging.upload_content(b"a", ".py") == staging.upload_content(b"a", ".py")
        return session

    session = upload(head_object=head_object)
    assert (session.count("put_object"), session.count("head_object")) == (0, 1)
    age = 90_000.0
    session = upload(head_object=head_object)
    assert (session.count("put_object"), session.count("head_object")) == (1, 1)

    def missing(**request: Any) -> None:
        raise AwsRequestError("", "404", 404)

    assert upload(head_object=missing).count("put_object") == 1


def test_a_supervisor_uploads_content_again_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    old = datetime.datetime.fromtimestamp(1.0, datetime.UTC)
    session: Any = RecordedSession(head_object={"LastModified": old})
    staging = S3Staging(session, parse_staging("s3://bucket/x"))
    staging.upload_content(b"a", ".py")
    now = time.time()
    monkeypatch.setattr(object_staging.time, "time", lambda: now + 90_000)
    staging.upload_content(b"a", ".py")
    assert session.count("put_object") == 2


def test_an_answer_that_cannot_be_read_leaves_open_whether_a_job_was_submitted() -> None:
    class Client:
        def submit_job(self, **request: Any) -> None:
            raise ResponseParserError("not JSON")

    session: Any = AwsSession("eu-west-1", None, {})
    session._clients["batch"] = Client()
    incomplete: Any = RecordedSession(submit_job={})
    for each in (session, incomplete):
        with pytest.raises(AwsConnectionError) as caught:
            BatchApi(each).submit({})
        assert is_unconfirmed(caught.value)
    with pytest.raises(AwsConnectionError, match="no jobs"):
        BatchApi(incomplete).describe_jobs(["a"])
    with pytest.raises(AwsConnectionError, match="no jobSummaryList"):
        BatchApi(incomplete).find_jobs("q", "a")
