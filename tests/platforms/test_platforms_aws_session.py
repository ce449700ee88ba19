"""Errors of requests to Amazon, and objects in S3, without a service."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
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
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.object_staging import parse_staging

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
    with pytest.raises(AwsConnectionError, match="no jobId") as caught:
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
    staging = S3Staging(cast("Any", session), parse_staging("s3://flights/jobs"))
    with pytest.raises(AwsCredentialsError, match="ExpiredToken"):
        staging.upload_content(b"a", ".py")
    now = datetime.now(UTC)
    session.answers = {"head_object": {"LastModified": now}, "put_object": expired}
    assert staging.upload_content(b"a", ".py").startswith("jobs/content/")
    assert session.operations == ["head_object", "put_object", "head_object"]


@pytest.fixture
def other_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a supervisor that another shell has started; return a folder."""
    others = {
        "AWS_ACCESS_KEY_ID": "FIRST", "AWS_SECRET_ACCESS_KEY": "first", "AWS_SESSION_TOKEN": "t",
        "AWS_PROFILE": "gone", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_CA_BUNDLE": "/none",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/first",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "none"),
    }  # fmt: skip
    for name, text in others.items():
        monkeypatch.setenv(name, text)
    (tmp_path / "config").write_text("[profile second]\nregion = eu-central-1\n")
    (tmp_path / "credentials").write_text(
        "[second]\naws_access_key_id = SECOND\naws_secret_access_key = second\n"
    )
    return tmp_path


def files(folder: Path) -> dict[str, str]:
    return {
        "AWS_CONFIG_FILE": str(folder / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def access_key(session: AwsSession) -> str | None:
    found = session._open_session("test").get_credentials()
    return None if found is None else str(found.access_key)


def test_the_environment_of_the_submission_replaces_that_of_the_supervisor(
    other_environment: Path,
) -> None:
    session = AwsSession(None, None, {**files(other_environment), "AWS_PROFILE": "second"})
    assert access_key(session) == "SECOND"
    assert session.region() == "eu-central-1"
    client = session._client("batch", "test")
    assert client.meta.endpoint_url == "https://batch.eu-central-1.amazonaws.com"
    assert session._session._session.get_config_variable("ca_bundle") is None


def test_no_credentials_of_the_supervisor_are_used(other_environment: Path) -> None:
    session = AwsSession("eu-west-1", None, files(other_environment))
    assert access_key(session) is None


def test_keys_come_before_the_profile_of_a_variable_and_after_that_of_the_settings(
    other_environment: Path,
) -> None:
    variables = {
        **files(other_environment), "AWS_PROFILE": "second", "AWS_ACCESS_KEY_ID": "THIRD",
        "AWS_SECRET_ACCESS_KEY": "third",
    }  # fmt: skip
    assert access_key(AwsSession(None, None, variables)) == "THIRD"
    assert access_key(AwsSession(None, "second", variables)) == "SECOND"


def test_the_role_of_a_web_identity_is_that_of_the_submission(
    other_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    class Client:
        def assume_role_with_web_identity(self, **request: Any) -> dict[str, Any]:
            asked.append(request)
            keys = {"AccessKeyId": "ROLE", "SecretAccessKey": "s", "SessionToken": "t"}
            return {"Credentials": {**keys, "Expiration": "2099-01-01T00:00:00Z"}}

    (other_environment / "token").write_text("identity")
    variables = {
        **files(other_environment),
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/second",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(other_environment / "token"),
    }
    session = AwsSession("eu-west-1", None, variables)
    core = session._open_session("test")._session
    monkeypatch.setattr(core, "create_client", lambda service, **options: Client())
    assert access_key(session) == "ROLE"
    assert asked[0]["RoleArn"] == "arn:aws:iam::123456789012:role/second"
    assert asked[0]["WebIdentityToken"] == "identity"
