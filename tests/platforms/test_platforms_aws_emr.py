"""Requests to Amazon EMR with recorded answers: pages, unknown clusters, errors, machines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from aws_answers import AnsweredSession

from hyperplane.platforms.aws.emr import EmrApi
from hyperplane.platforms.aws.emr_instances import INSTANCES, instance_price
from hyperplane.platforms.aws.errors import (
    AwsConnectionError,
    AwsRequestError,
    is_invalid,
    is_retryable,
    is_unconfirmed,
)

UNKNOWN = AwsRequestError("Cluster id 'j-1' is not valid.", "InvalidRequestException", 400)


def api(*answers: Any) -> tuple[EmrApi, AnsweredSession]:
    session = AnsweredSession("emr", *answers)
    return EmrApi(cast("Any", session)), session


def entry(each: str, name: str, day: int) -> dict[str, Any]:
    created = {"Timeline": {"CreationDateTime": datetime(2026, 11, day, tzinfo=UTC)}}
    return {"Id": each, "Name": name, "Status": created}


def test_clusters_of_all_pages_are_found_the_oldest_first() -> None:
    emr, session = api(
        {"Clusters": [entry("j-3", "one", 3), entry("j-2", "two", 2)], "Marker": "more"},
        {"Clusters": [entry("j-1", "one", 1)]},
    )
    assert emr.find_clusters("one", 0.0) == ["j-1", "j-3"]
    after = datetime(1970, 1, 1, tzinfo=UTC)
    assert session.requests == [
        ("list_clusters", {"CreatedAfter": after}),
        ("list_clusters", {"CreatedAfter": after, "Marker": "more"}),
    ]
    with pytest.raises(AwsConnectionError, match="no Clusters"):  # the page of a proxy
        api({})[0].find_clusters("one", 0.0)


def test_steps_are_searched_until_they_are_too_old() -> None:
    emr, session = api(
        {"Steps": [entry("s-3", "one", 3), entry("s-2", "one", 2)], "Marker": "more"},
        {"Steps": [entry("s-1", "two", 1)], "Marker": "more"},
    )
    since = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
    assert emr.find_steps("j-1", "one", since) == ["j-1/s-2", "j-1/s-3"]
    assert len(session.requests) == 2


def test_steps_of_a_cluster_are_read_together() -> None:
    cluster = {"Id": "j-1", "Status": {"State": "WAITING"}}
    names = [f"j-1/s-{number}" for number in range(12)]
    emr, session = api(
        {"Cluster": cluster},
        {"Steps": [{"Id": f"s-{number}"} for number in range(10)]},
        {"Steps": [{"Id": "s-10"}]},
    )
    runs = emr.read_runs("j-1", names)
    assert list(runs) == names[:11]  # EMR does not have the last one
    assert runs["j-1/s-3"] == {"Cluster": cluster, "Shared": True, "Step": {"Id": "s-3"}}
    assert [len(request.get("StepIds", [])) for _, request in session.requests] == [0, 10, 2]


def test_a_cluster_of_one_step_is_read_by_its_id() -> None:
    cluster = {"Id": "j-1", "Status": {"State": "STARTING"}}
    emr, _ = api({"Cluster": cluster}, {"Steps": [{"Id": "s-1"}]})
    assert emr.read_runs("j-1", ["j-1"]) == {"j-1": {"Cluster": cluster, "Step": {"Id": "s-1"}}}
    assert api(UNKNOWN)[0].read_runs("j-1", ["j-1"]) == {}
    with pytest.raises(AwsRequestError, match="denied"):
        api(AwsRequestError("denied", "AccessDeniedException", 400))[0].describe_cluster("j-1")


def test_a_run_is_a_cluster_or_a_step() -> None:
    emr, session = api({"JobFlowId": "j-1"}, {"StepIds": ["s-1"]}, {}, {"CancelStepsInfoList": []})
    assert emr.start({"Name": "one"}) == "j-1"
    assert emr.start({"JobFlowId": "j-1", "Steps": []}) == "j-1/s-1"
    emr.stop("j-1")
    emr.stop("j-1/s-1")
    cancel = {"ClusterId": "j-1", "StepIds": ["s-1"], "StepCancellationOption": "TERMINATE_PROCESS"}
    assert session.requests[2:] == [
        ("terminate_job_flows", {"JobFlowIds": ["j-1"]}),
        ("cancel_steps", cancel),
    ]
    for answer in ({}, {"JobFlowId": ""}):
        with pytest.raises(AwsConnectionError) as caught:
            api(answer)[0].start({"Name": "one"})
        assert is_unconfirmed(caught.value)


def test_a_cancellation_that_fails_in_an_answer_without_an_error_is_raised() -> None:
    info = {"StepId": "s-1", "Status": "FAILED", "Reason": "it has ended"}
    with pytest.raises(AwsRequestError, match="it has ended") as caught:
        api({"CancelStepsInfoList": [info]})[0].stop("j-1/s-1")
    assert is_invalid(caught.value)


def test_a_cluster_with_the_most_steps_is_asked_again() -> None:
    text = "Maximum number of active steps(State = 'Running', 'Pending') for cluster exceeded."
    with pytest.raises(AwsRequestError) as caught:
        api(AwsRequestError(text, "ValidationException", 400))[0].start({"JobFlowId": "j-1"})
    assert is_retryable(caught.value)
    assert not is_unconfirmed(caught.value)


def test_machines_are_in_the_order_of_their_price() -> None:
    prices = [instance_price("us-east-1", instance.name) for instance in INSTANCES]
    known = [price for price in prices if price is not None]
    assert known == sorted(known)
    assert prices[-2:] == [None, None]
