"""Requests to AWS Glue with recorded answers: pages, names that are taken, unknown runs, errors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from aws_answers import AnsweredSession

from hyperplane.platforms.aws.errors import (
    AwsConnectionError,
    AwsRequestError,
    is_invalid,
    is_retryable,
    is_unconfirmed,
)
from hyperplane.platforms.aws.glue import GlueApi
from hyperplane.platforms.aws.glue_workers import WORKERS


def api(*answers: Any) -> tuple[GlueApi, AnsweredSession]:
    session = AnsweredSession("glue", *answers)
    return GlueApi(cast("Any", session)), session


def refusal(code: str) -> AwsRequestError:
    return AwsRequestError("refused", code, 400)


def run(name: str, day: int) -> dict[str, Any]:
    return {"Id": name, "StartedOn": datetime(2026, 11, day, tzinfo=UTC)}


def test_runs_of_all_pages_are_found_the_oldest_first() -> None:
    glue, session = api(
        {"JobRuns": [run("jr_3", 3)], "NextToken": "more"}, {"JobRuns": [run("jr_1", 1)]}
    )
    assert glue.find_runs("one") == ["one/jr_1", "one/jr_3"]
    assert session.requests[1] == ("get_job_runs", {"JobName": "one", "NextToken": "more"})
    assert api(refusal("EntityNotFoundException"))[0].find_runs("one") == []
    with pytest.raises(AwsRequestError):
        api(refusal("AccessDeniedException"))[0].find_runs("one")
    with pytest.raises(AwsConnectionError, match="no JobRuns"):  # the page of a proxy
        api({})[0].find_runs("one")


@pytest.mark.parametrize("code", ["AlreadyExistsException", "IdempotentParameterMismatchException"])
def test_a_job_that_exists_is_not_created_again(code: str) -> None:
    api(refusal(code))[0].create_job({"Name": "one"})
    with pytest.raises(AwsRequestError):
        api(refusal("InvalidInputException"))[0].create_job({"Name": "one"})


def test_a_run_has_the_name_of_its_job() -> None:
    glue, session = api({"JobRunId": "jr_1"}, {"JobRun": {"Id": "jr_1"}})
    assert glue.start_run("one") == "one/jr_1"
    assert glue.read_run("one/jr_1") == {"Id": "jr_1"}
    assert session.requests[1] == ("get_job_run", {"JobName": "one", "RunId": "jr_1"})
    assert api(refusal("EntityNotFoundException"))[0].read_run("one/jr_1") is None
    with pytest.raises(AwsConnectionError, match="no JobRunId"):
        api({})[0].start_run("one")


def test_an_error_in_an_answer_without_one_is_raised() -> None:
    detail = {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "no run"}
    glue, session = api({"SuccessfulSubmissions": [{}]}, {"Errors": [{"ErrorDetail": detail}]})
    glue.stop_run("one/jr_1")
    assert session.requests == [("batch_stop_job_run", {"JobName": "one", "JobRunIds": ["jr_1"]})]
    with pytest.raises(AwsRequestError, match="EntityNotFoundException") as caught:
        glue.stop_run("one/jr_1")
    assert is_invalid(caught.value)


@pytest.mark.parametrize(
    ("code", "retryable", "unconfirmed"),
    [
        ("ConcurrentRunsExceededException", True, True),
        ("OperationTimeoutException", True, True),
        ("ResourceNumberLimitExceededException", True, False),
        ("ThrottlingException", True, False),
        ("InvalidInputException", False, False),
    ],
)
def test_what_errors_of_glue_mean(code: str, retryable: bool, unconfirmed: bool) -> None:
    error = refusal(code)
    assert (is_retryable(error), is_unconfirmed(error)) == (retryable, unconfirmed)


def test_machines_are_in_the_order_of_their_price() -> None:
    for workers in WORKERS.values():
        assert list(workers) == sorted(workers, key=lambda worker: worker.dpus)
