"""Lists of many jobs in GraphQL queries: they are limited, and others are answered meanwhile."""

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
from hyperplane.ui.graphql_api import context
from hyperplane.ui.graphql_api.context import RequestContext
from hyperplane.ui.graphql_api.schema import create_schema

LIST = "pipelineJobs(take: 1000) { id }"


@pytest.fixture(autouse=True)
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Readings of a store with 1,000 jobs."""
    made = new_job(Pipeline.from_steps("p", [Step(name="a", kind="command", argv=("true",))]))
    jobs = [replace(made, id=str(number)) for number in range(1000)]
    found: list[Any] = []

    def find(statuses: list[str] | None = None) -> list[Job]:
        found.append(statuses)
        return jobs[:3] if statuses else list(jobs)

    monkeypatch.setattr(context, "open_store", lambda: SimpleNamespace(find=find))
    return found


async def execute(query: str) -> Any:
    return await create_schema().execute(query, context_value=RequestContext(Path("/")))


def test_lists_of_a_query_have_a_limit_together() -> None:
    result = asyncio.run(execute(f"{{ a: {LIST} b: {LIST} }}"))
    assert result.errors is None
    assert [len(result.data[name]) for name in "ab"] == [1000, 1000]
    result = asyncio.run(execute(f"{{ a: {LIST} b: {LIST} c: pipelineJobs(take: 1) {{ id }} }}"))
    assert result.data is None
    assert str(result.errors[0].message).splitlines()[1:] == [
        "  1. pipelineJobs = more than 2,000 jobs in the lists of one query: expected at most "
        "2,000; give take, or send several queries"
    ]


def test_no_jobs_are_read_beyond_the_limit(reads: list[Any]) -> None:
    aliases = " ".join(f"a{number}: {LIST}" for number in range(200))
    assert asyncio.run(execute(f"{{ {aliases} }}")).data is None
    assert reads == [None]


def test_the_store_is_read_once_for_the_lists_and_counts_of_a_query(reads: list[Any]) -> None:
    counts = " ".join(f"a{number}: countJobs" for number in range(100))
    wheres = [f'whereOveride: {{id: {{equals: "{number}"}}}}' for number in range(50)]
    filtered = " ".join(f"b{number}: countJobs({where})" for number, where in enumerate(wheres))
    lists = " ".join(f"c{number}: pipelineJobs(take: 1) {{ id }}" for number in range(50))
    result = asyncio.run(execute(f"{{ {counts} {filtered} {lists} }}"))
    assert result.errors is None
    assert {result.data[f"a{number}"] for number in range(100)} == {1000}
    assert {result.data[f"b{number}"] for number in range(50)} == {1}
    assert {jobs[0]["id"] for name, jobs in result.data.items() if name[0] == "c"} == {"0"}
    assert reads == [None]
    asyncio.run(execute("{ countJobs }"))  # a later query has later jobs
    assert reads == [None, None]


def test_many_short_lists_are_answered() -> None:
    where = 'where: {status: {equals: "pending"}}'
    aliases = " ".join(f"a{number}: pipelineJobs({where}) {{ id }}" for number in range(200))
    result = asyncio.run(execute(f"{{ {aliases} }}"))
    assert result.errors is None
    assert {len(jobs) for jobs in result.data.values()} == {3}


def test_others_are_answered_while_a_list_is_built() -> None:
    async def count_turns() -> int:
        turns = 0
        task = asyncio.create_task(execute(f"{{ {LIST} }}"))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert len(task.result().data["pipelineJobs"]) == 1000
        return turns

    assert asyncio.run(count_turns()) > 1000
