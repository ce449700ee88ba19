"""Filters of jobs in GraphQL queries: nulls and variables without a value are errors."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import Job
from hyperplane.ui.graphql_api import context, submission
from hyperplane.ui.graphql_api.context import RequestContext
from hyperplane.ui.graphql_api.schema import create_schema

DATA = 'data: {status: {set: "cancelled"}}'


@pytest.fixture(autouse=True)
def cancelled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """IDs of the jobs that were cancelled, of three open ones: a-job, b-job and c-job."""
    step = Step(name="a", kind="command", argv=("true",))
    made = new_job(Pipeline.from_steps("p", [step]))
    jobs = [replace(made, id=name, name=f"{name}-job", submitted=100.0 + number)
            for number, name in enumerate("abc")]  # fmt: skip
    ids: list[str] = []

    def find(statuses: list[str] | None = None) -> list[Job]:
        return [each for each in jobs if statuses is None or each.status in statuses]

    monkeypatch.setattr(context, "open_store", lambda: SimpleNamespace(find=find))
    monkeypatch.setattr(submission.job_control, "cancel", lambda name, **_: ids.append(name))
    return ids


def execute(query: str, variables: dict[str, Any] | None = None) -> Any:
    return asyncio.run(
        create_schema().execute(query, variables, context_value=RequestContext(Path("/")))
    )


def error_of(query: str, variables: dict[str, Any] | None = None) -> str:
    errors = execute(query, variables).errors
    return "\n".join(each.message for each in errors or ())


def count(where: str) -> int:
    result = execute(f"{{ countJobs(whereOveride: {where}) }}")
    assert result.errors is None, result.errors
    return result.data["countJobs"]


def cancel_many(where: str, declared: str = "") -> str:
    return f"mutation {declared} {{ updateManyPipelineJob(where: {where}, {DATA}) {{ count }} }}"


@pytest.mark.parametrize(
    ("where", "declared", "argument"),
    [
        ("{jobName: {equals: $v}}", "String", "where.jobName.equals"),
        ("{jobName: {contains: $v, mode: insensitive}}", "String", "where.jobName.contains"),
        ("{jobName: {not: $v}}", "String", "where.jobName.not"),
        ("{jobName: {startsWith: $v}}", "String", "where.jobName.startsWith"),
        ("{jobName: {in: $v}}", "[String!]", "where.jobName.in"),
        ("{id: {notIn: $v}}", "[String!]", "where.id.notIn"),
        ("{startTime: {gte: $v}}", "DateTime", "where.startTime.gte"),
        ("{jobName: $v}", "StringFilter", "where.jobName"),
        ("{startTime: $v}", "DateTimeFilter", "where.startTime"),
        ('{status: {equals: "pending"}, jobName: {equals: $v}}', "String", "where.jobName.equals"),
        ('{status: {equals: "pending"}, OR: $v}', "[PipelineJobWhereInput!]", "where.OR"),
        ("{AND: [{jobName: {equals: $v}}]}", "String", "where.AND[0].jobName.equals"),
        ('{OR: [{id: {equals: "a"}}, {jobName: {equals: $v}}]}', "String",
         "where.OR[1].jobName.equals"),
        ("{NOT: [{NOT: [{jobName: {equals: $v}}]}]}", "String",
         "where.NOT[0].NOT[0].jobName.equals"),
        ("{NOT: $v}", "[PipelineJobWhereInput!]", "where.NOT"),
    ],
)  # fmt: skip
def test_a_variable_that_is_null_or_missing_never_widens_a_filter(
    cancelled: list[str], where: str, declared: str, argument: str
) -> None:
    query = cancel_many(where, f"($v: {declared})")
    assert f"{argument} = null: expected" in error_of(query, {"v": None})
    assert "$v = no value: expected a value, because where has the variable" in error_of(query)
    assert cancelled == []
    count_query = f"query ($v: {declared}) {{ countJobs(whereOveride: {where}) }}"
    found = argument.replace("where", "whereOveride")
    assert f"{found} = null: expected" in error_of(count_query, {"v": None})
    assert "$v = no value" in error_of(count_query)
    list_query = f"query ($v: {declared}) {{ pipelineJobs(where: {where}) {{ id }} }}"
    assert f"{argument} = null: expected" in error_of(list_query, {"v": None})
    assert "$v = no value" in error_of(list_query)


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("{}", "where = no condition"),
        ("{AND: []}", "where.AND = an empty list"),
        ("{NOT: []}", "where.NOT = an empty list"),
        ("{AND: [{}]}", "where.AND[0] = no condition"),
        ('{OR: [{id: {equals: "a"}}, {}]}', "where.OR[1] = no condition"),
        ("{NOT: [{OR: []}]}", "where.NOT[0].OR = an empty list"),
        ('{hyperplaneUserEmail: {equals: "ada@example.org"}}', "where = no condition"),
        ('{OR: [{hyperplaneUserEmail: {equals: "a"}}]}', "where.OR[0] = no condition"),
        ("{jobName: {}}", "where.jobName = no condition"),
        ("{jobName: {mode: insensitive}}", "where.jobName = no condition"),
        ("{startTime: {}}", "where.startTime = no condition"),
        ("{NOT: [{startTime: {}}]}", "where.NOT[0].startTime = no condition"),
        ('{jobName: {contains: ""}}', "where.jobName.contains = ''"),
        ('{jobName: {startsWith: ""}}', "where.jobName.startsWith = ''"),
        ('{jobName: {endsWith: ""}}', "where.jobName.endsWith = ''"),
        ('{jobName: {not: ""}}', "where.jobName.not = ''"),
        ('{NOT: [{jobName: {equals: ""}}]}', "where.NOT[0].jobName.equals = ''"),
        ("{jobName: {notIn: []}}", "where.jobName.notIn = []"),
        ('{jobName: {notIn: [""]}}', "where.jobName.notIn = ['']"),
        ("{NOT: [{jobName: {in: []}}]}", "where.NOT[0].jobName.in = []"),
        ('{id: {equals: "a", contains: ""}}', "where.id.contains = ''"),
    ],
)  # fmt: skip
def test_empty_conditions_cancel_nothing(cancelled: list[str], where: str, fault: str) -> None:
    message = error_of(cancel_many(where))
    assert f"{fault}: expected" in message
    assert cancelled == []


def test_jobs_that_meet_the_conditions_are_cancelled(cancelled: list[str]) -> None:
    query = cancel_many("{OR: [{id: {equals: $v}}, {jobName: {in: $w}}]}",
                        '($v: String = "a", $w: [String!])')  # fmt: skip
    assert execute(query, {"w": ["c-job"]}).data == {"updateManyPipelineJob": {"count": 2}}
    assert cancelled == ["a", "c"]
    whole = cancel_many("$w", "($w: PipelineJobWhereInput!)")
    assert error_of(whole, {"w": {"id": {"equals": None}}})
    assert error_of(whole, {"w": None})
    assert error_of(whole)
    assert cancelled == ["a", "c"]
    assert execute(whole, {"w": {"id": {"equals": "b"}}}).errors is None
    assert cancelled == ["a", "c", "b"]


def test_many_faults_are_limited(cancelled: list[str]) -> None:
    message = error_of(cancel_many("{AND: [" + "{}, " * 100 + "]}"))
    assert message.count("no condition") == 10
    assert cancelled == []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("null", 3),
        ("{}", 3),
        ("{AND: []}", 3),
        ("{OR: []}", 0),
        ('{hyperplaneUserEmail: {equals: "ada@example.org"}}', 3),
        ("{hyperplaneUserEmail: null}", 3),
        ('{jobName: {contains: ""}}', 3),
        ("{id: {in: []}}", 0),
        ("{id: {notIn: []}}", 3),
        ('{id: {equals: "A"}}', 0),
        ('{id: {equals: "A", mode: insensitive}}', 1),
        ('{id: {in: ["A", "B"], not: "b", mode: insensitive}}', 1),
        ('{id: {notIn: ["a", "b"]}}', 1),
        ('{jobName: {startsWith: "a", endsWith: "-job"}}', 1),
        ('{schedule: {equals: "immediate"}}', 3),
        ('{status: {equals: "pending"}}', 3),
        ('{status: {equals: "done"}}', 0),
        ('{status: {equals: "DONE", mode: insensitive}}', 0),
        ('{startTime: {gt: "1970-01-01T00:01:40Z"}}', 2),
        ('{startTime: {equals: "1970-01-01T00:01:40Z"}}', 1),
        ('{startTime: {lt: "1970-01-01T00:01:42", gte: "1970-01-01T00:01:41+00:00"}}', 1),
        ('{completionTime: {lt: "2030-01-01T00:00:00Z"}}', 0),
    ],
)  # fmt: skip
def test_conditions(where: str, expected: int) -> None:
    assert count(where) == expected


def test_a_filter_that_is_left_out_means_all_jobs() -> None:
    query = "query ($w: PipelineJobWhereInput) { countJobs(whereOveride: $w) }"
    assert execute(query).data == execute(query, {"w": None}).data == {"countJobs": 3}


@pytest.mark.parametrize("field", ["startTime", "completionTime"])
def test_the_time_of_a_response_finds_its_job(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    made = new_job(Pipeline.from_steps("p", [Step(name="a", kind="command", argv=("true",))]))
    jobs = [replace(made, id=str(number), submitted=at, ended=at)
            for number, at in enumerate((1764400000.25049, 1764400000.2519996, 0.0))]  # fmt: skip
    monkeypatch.setattr(context, "open_store", lambda: SimpleNamespace(find=lambda **_: jobs))

    def find(**condition: str) -> list[str]:
        query = f"query ($w: PipelineJobWhereInput) {{ pipelineJobs(where: $w) {{ id {field} }} }}"
        found = execute(query, {"w": {field: condition}}).data["pipelineJobs"]
        return [each["id"] for each in found]

    listed = execute(f"{{ pipelineJobs {{ {field} }} }}").data["pipelineJobs"]
    first, second = listed[0][field], listed[1][field]
    assert (first, second) == ("2025-11-29T07:06:40.250Z", "2025-11-29T07:06:40.252Z")
    assert find(equals=first) == find(lte=first) == ["0"]
    assert find(equals=second) == find(gte=second) == find(gt=first) == ["1"]
    assert find(lt=first) == find(gt=second) == []
