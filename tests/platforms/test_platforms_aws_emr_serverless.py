"""Requests to EMR Serverless with recorded answers: pages, unknown runs and applications."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from aws_answers import AnsweredSession

from hyperplane.platforms.aws.emr_serverless import EmrServerlessApi
from hyperplane.platforms.aws.emr_serverless_check import _check_application
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsRequestError

GONE = AwsRequestError("none", "ResourceNotFoundException", 404)


def api(*answers: Any) -> tuple[EmrServerlessApi, AnsweredSession]:
    session = AnsweredSession("emr-serverless", *answers)
    return EmrServerlessApi(cast("Any", session)), session


def run(each: str, name: str, day: int) -> dict[str, Any]:
    return {"id": each, "name": name, "createdAt": datetime(2026, 11, day, tzinfo=UTC)}


def test_runs_of_all_pages_are_found_the_oldest_first() -> None:
    service, session = api(
        {"jobRuns": [run("3", "one", 3), run("2", "two", 2)], "nextToken": "more"},
        {"jobRuns": [run("1", "one", 1), {"id": "0"}]},
    )
    assert service.find_runs("00f1", "one", 0.0) == ["00f1/1", "00f1/3"]
    after = datetime(1970, 1, 1, tzinfo=UTC)
    first = {"applicationId": "00f1", "createdAtAfter": after}
    assert session.requests[1] == ("list_job_runs", {**first, "nextToken": "more"})
    assert api(GONE)[0].find_runs("00f1", "one", 0.0) == []


def test_a_run_has_the_name_of_its_application() -> None:
    service, session = api({"jobRunId": "1"}, {"jobRun": {"state": "RUNNING"}}, GONE, {})
    assert service.start({"applicationId": "00f1", "clientToken": "x"}) == "00f1/1"
    assert service.read_run("00f1/1") == {"state": "RUNNING"}
    assert service.read_run("00f1/1") is None
    service.stop("00f1/1")
    request = {"applicationId": "00f1", "jobRunId": "1"}
    assert session.requests[1:] == [
        ("get_job_run", request), ("get_job_run", request), ("cancel_job_run", request)
    ]  # fmt: skip
    with pytest.raises(AwsConnectionError, match="no jobRunId"):
        api({})[0].start({"applicationId": "00f1"})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"type": "Spark", "state": "STARTED"}, ""),
        ({"type": "SPARK", "state": "STOPPED"}, ""),
        ({"type": "Hive", "state": "STARTED"}, "one of type Spark; it is of Hive"),
        ({"type": "Spark", "state": "TERMINATED"}, "one that starts runs; it is TERMINATED"),
        (
            {"type": "Spark", "state": "STOPPED", "autoStartConfiguration": {"enabled": False}},
            "start it with 'aws emr-serverless start-application",
        ),
        (GONE, "an application in eu-west-1"),
    ],
)
def test_applications_that_start_no_runs_are_faults(answer: Any, expected: str) -> None:
    found = answer if isinstance(answer, AwsRequestError) else {"application": answer}
    session = AnsweredSession("emr-serverless", found)
    session.region = lambda: "eu-west-1"  # type: ignore[attr-defined]
    faults = _check_application(cast("Any", session), "00f1")
    assert len(faults) == bool(expected)
    assert expected in "".join(map(str, faults))
