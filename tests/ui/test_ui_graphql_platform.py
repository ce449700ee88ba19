"""Documented calls of the platform: those that are answered, and those that say what to use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from job_cases import bash

from hyperplane.jobs import Pipeline, job_control
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import DONE
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.submission.submission_snapshot import NoticeRequest
from hyperplane.ui.graphql_api.context import RequestContext
from hyperplane.ui.graphql_api.schema import create_schema

SCHEMA = create_schema()

SHAKUDO = """
mutation {
  createShakudoPipelineJob(
    jobName: "unruffled_ardinghelli", jobType: "basic", timeout: 1800, activeTimeout: 1700,
    maxRetries: 2, pipelineYamlPath: "load.sh", defaultCommands: true, gitInit: false,
    commitId: "", branchName: "", parameters: { create: [{ key: "a", value: "1" }] }
  ) { id jobName schedule parameters { key value } noGitInit noHyperplaneCommands timeout }
}
"""
SESSIONS = """
query hyperhubSessions($limit: Int!, $email: String, $status: String, $imageType: String) {
  hyperHubSessions(orderBy: {startTime: desc}, take: $limit, where: {
    hyperplaneUserEmail: {equals: $email}, imageType: {equals: $imageType},
    status: {equals: $status},
  }) {
    id hyperplaneUserEmail status imageType jLabUrl notebookURI estimatedCost department
    resourceCPUlimit resourceRAMlimit resourceCPUrequest resourceRAMrequest gpuRequest startTime
    completionTime
  }
  countHyperHubSessions
  countJobs
}
"""
SERVICES = """
query nextJobs($offset: Int, $limit: Int!, $status: String!) {
  pipelineJobs(orderBy: [{pinned: desc}, {startTime: desc}], take: $limit, skip: $offset, where: {
    AND: [{activeTimeout: {equals: -1}}, {timeout: {equals: -1}}, {status: {equals: $status}}]
  }) { id exposedPort pinned duration estimatedCost owner department maxRetries }
}
"""


@pytest.fixture(autouse=True)
def alone(place: Path) -> Iterator[None]:
    """A store without the jobs of other tests."""
    yield
    with open_store()._engine.begin() as connection:
        for table in ("job_numbers", "jobs"):
            connection.exec_driver_sql(f"DELETE FROM hyperplane_{table}")


def execute(query: str, folder: Path = Path(), **variables: Any) -> Any:
    return asyncio.run(
        SCHEMA.execute(query, variable_values=variables, context_value=RequestContext(folder))
    )


def ask(query: str, folder: Path = Path(), **variables: Any) -> Any:
    result = execute(query, folder, **variables)
    assert not result.errors, result.errors
    return result.data


def test_the_documented_mutation_of_2023_submits_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = []
    monkeypatch.setattr(
        job_control, "submit_job", lambda job, **options: submitted.append((job, options))
    )
    (tmp_path / "load.sh").write_text("true\n")
    found = ask(SHAKUDO, tmp_path)["createShakudoPipelineJob"]
    [(job, options)] = submitted
    assert found == {
        "id": job.id, "jobName": "unruffled_ardinghelli", "schedule": "immediate",
        "parameters": [{"key": "a", "value": "1"}], "noGitInit": True,
        "noHyperplaneCommands": False, "timeout": 1800,
    }  # fmt: skip
    assert (job.active_timeout, job.max_retries, job.parameters) == (1700, 2, {"a": "1"})
    assert options["notify"] == NoticeRequest()
    error = execute(SHAKUDO.replace("load.sh", "absent.sh"), tmp_path).errors[0]
    assert "pipelineYamlPath" in error.message
    assert len(submitted) == 1


def test_sessions_are_refused_with_what_to_use_and_the_rest_is_answered() -> None:
    result = execute(SESSIONS, limit=10, email="a@b.c", status="done", imageType="basic")
    assert result.data == {
        "hyperHubSessions": None, "countHyperHubSessions": None, "countJobs": 0,
    }  # fmt: skip
    assert [error.path for error in result.errors] == [
        ["hyperHubSessions"], ["countHyperHubSessions"],
    ]  # fmt: skip
    for error in result.errors:
        assert "'hyperplane cluster list'" in error.message
        assert error.extensions == {"error": "NotAvailable"}


@pytest.mark.parametrize(
    ("query", "name", "advice"),
    [
        (
            "mutation($id: String!) { updateHyperHubSession(where: {id: $id}, data: "
            '{status: {set: "cancelled"}}) { id status } }',
            "updateHyperHubSession", "jupyter lab",
        ),
        (
            "mutation($id: HyperHubSessionCreateInput!) "
            "{ createHyperHubSession(data: $id) { id } }",
            "createHyperHubSession", "jupyter lab",
        ),
        ('query($id: String) { hyperHubSession(where: {id: $id}) { id } }', "hyperHubSession",
         "jupyter lab"),
        (
            "mutation($id: String!, $key: String, $value: String) { updateParameter(where: "
            "{id: $id}, data: {key: {set: $key} value: {set: $value}}) { id } }",
            "updateParameter", "submit it again with createPipelineJob",
        ),
        (
            'mutation($id: String!) { updatePipelineJob(where: {id: "x"}, data: '
            "{parameters: {disconnect: {id: $id}}}) { id } }",
            "data.parameters", "submit it again with createPipelineJob",
        ),
    ],
)  # fmt: skip
def test_calls_that_do_not_exist_here_say_what_to_use(query: str, name: str, advice: str) -> None:
    [error] = execute(query, id="3f0c").errors
    assert error.message.startswith(f"{name}: ")
    assert advice in error.message
    assert error.extensions == {"error": "NotAvailable"}


def test_a_change_of_nothing_is_a_fault() -> None:
    [error] = execute('mutation { updatePipelineJob(where: {id: "x"}, data: {}) { id } }').errors
    assert "data.status.set is not set; expected 'cancelled'" in error.message


def test_services_are_found_by_their_timeouts(tmp_path: Path) -> None:
    pipeline = Pipeline.from_steps("p", [bash("one", "true")], root=str(tmp_path))
    ids = []
    for timeout in (-1, 60, -1):
        job = new_job(pipeline, timeout=timeout, active_timeout=timeout, max_retries=3)
        open_store().add(replace(job, status=DONE, submitted=1e9 + len(ids)))
        ids.append(job.id)
    found = ask(SERVICES, limit=5, status=DONE)["pipelineJobs"]
    assert [each["id"] for each in found] == [ids[2], ids[0]]
    assert (found[0]["estimatedCost"], found[0]["department"]) == (None, None)
    for condition, count in (
        ("timeout: {gt: 10}", 1), ("timeout: {not: 60}", 2), ("maxRetries: {in: [2, 3]}", 3),
        ("maxRetries: {in: []}", 0), ("activeTimeout: {lte: 60, gte: 0}", 1),
    ):  # fmt: skip
        query = f"{{ countJobs(whereOveride: {{{condition}}}) }}"
        assert ask(query)["countJobs"] == count, condition
    for condition in ("timeout: {}", "timeout: null", "timeout: {lt: null}"):
        assert execute(f"{{ countJobs(whereOveride: {{{condition}}}) }}").errors
    [error] = execute(
        "mutation { updateManyPipelineJob(where: {maxRetries: {in: []}}, data: {status: "
        '{set: "cancelled"}}) { count } }'
    ).errors
    assert "where.maxRetries.in" in error.message


def test_a_user_has_the_email_as_its_id() -> None:
    query = (
        "query GetHyperplaneUserId($email: String!) "
        "{ hyperplaneUsers(where: {email: {equals: $email}}) { id } }"
    )
    assert ask(query, email="ada@example.org") == {"hyperplaneUsers": [{"id": "ada@example.org"}]}
    assert ask("{ hyperplaneUsers { id email } }") == {"hyperplaneUsers": []}
