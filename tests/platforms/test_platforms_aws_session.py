"""Errors of requests to Amazon, and objects in S3, without a service."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hyperplane.platforms.aws.batch import BatchApi
from hyperplane.platforms.aws.errors import (
    AwsConnectionError,
    AwsCredentialsError,
    AwsError,
    AwsRequestError,
    is_retryable,
    is_unconfirmed,
    translate_error,
)
from hyperplane.platforms.aws.object_staging import ObjectStaging, parse_staging
from hyperplane.platforms.aws.session import AwsSession

pytest.importorskip("botocore")


class FakeSession:
    """Answers of ``AwsSession``: a mapping, or an error that is raised."""

    def __init__(self, **answers: dict[str, Any] | AwsError) -> None:
        self.answers, self.operations = answers, list[str]()

    def call(self, service: str, operation: str, **request: Any) -> dict[str, Any]:
        del service, request
        self.operations.append(operation)
        answer = self.answers[operation]
        if isinstance(answer, AwsError):
            raise answer
        return answer


def test_an_answer_that_cannot_be_read_leaves_a_request_unconfirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from botocore.parsers import ResponseParserError

    class Client:
        def put_object(self, **request: Any) -> None:
            raise ResponseParserError("invalid XML received")

    session = AwsSession("eu-west-1", None, {})
    monkeypatch.setattr(session, "_client", lambda service, action: Client())
    with pytest.raises(AwsConnectionError, match="invalid XML") as caught:
        session.call("s3", "put_object")
    assert is_unconfirmed(caught.value)


@pytest.mark.parametrize("answer", [{}, {"jobId": ""}, {"message": "<html>"}])
def test_a_submission_whose_answer_has_no_id_is_unconfirmed(answer: dict[str, Any]) -> None:
    api = BatchApi(cast("Any", FakeSession(submit_job=answer)))
    with pytest.raises(AwsConnectionError, match="no id of a job") as caught:
        api.submit({})
    assert is_unconfirmed(caught.value)


def test_a_slow_upload_is_repeated() -> None:
    from botocore.exceptions import ClientError

    answer = {"Error": {"Code": "RequestTimeout"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    error = translate_error(ClientError(cast("Any", answer), "PutObject"), "s3 put_object")
    assert is_retryable(error)
    assert not is_unconfirmed(error)


def test_the_upload_says_why_an_object_cannot_be_found() -> None:
    # An answer to HEAD has no body: expired credentials are "400 Bad Request".
    expired = AwsCredentialsError("ExpiredToken")
    session = FakeSession(
        head_object=AwsRequestError("Bad Request", "400", 400), put_object=expired
    )
    staging = ObjectStaging(cast("Any", session), parse_staging("s3://flights/jobs"))
    with pytest.raises(AwsCredentialsError, match="ExpiredToken"):
        staging.upload_content(b"a", ".py")
    session.answers = {"head_object": {}, "put_object": expired}
    assert staging.upload_content(b"a", ".py").startswith("jobs/content/")
    assert session.operations == ["head_object", "put_object", "head_object"]
