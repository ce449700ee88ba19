"""The GraphQL schema: queries and mutations of jobs, and limits of queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import strawberry
from graphql import GraphQLError
from strawberry.extensions import (
    MaxAliasesLimiter,
    MaxTokensLimiter,
    QueryDepthLimiter,
    SchemaExtension,
)
from strawberry.schema.config import StrawberryConfig
from strawberry.types import ExecutionContext, Info

from hyperplane.core.errors import check
from hyperplane.jobs.store.job_records import Job
from hyperplane.ui.graphql_api import job_filters, submission
from hyperplane.ui.graphql_api.context import RequestContext
from hyperplane.ui.graphql_api.errors import log_unexpected, run_in_thread
from hyperplane.ui.graphql_api.filter_checks import unset_variable_faults
from hyperplane.ui.graphql_api.job_filters import (
    PipelineJobOrderByWithRelationInput,
    PipelineJobWhereInput,
)
from hyperplane.ui.graphql_api.job_inputs import (
    HyperplaneUserWhereInput,
    ParameterCreateNestedManyWithoutPipelineJobInput,
    PipelineJobCreateInput,
    PipelineJobUpdateInput,
    PipelineJobWhereUniqueInput,
    PipelineJobWithAlertingCreateInput,
)
from hyperplane.ui.graphql_api.job_types import (
    HyperplaneUser,
    JobStat,
    JobStatus,
    JobTime,
    NotificationTarget,
    NotificationTargetOfJob,
    PipelineJob,
    TimeFrame,
    count_by_status,
    to_pipeline_job,
    write_time,
)
from hyperplane.ui.graphql_api.sessions import (
    PLATFORM_INPUTS,
    UnavailableMutations,
    UnavailableQueries,
)

#: Limits of a query. The longest one of a published program has 500 tokens and a depth of 4.
MOST_TOKENS, _MOST_ALIASES, _MOST_DEPTH = 10_000, 200, 8
#: Fields of a submission that the job in its response has, too.
_REPEATED = (
    "pipeline_yaml_path", "working_dir", "pipeline_type", "timezone", "branch_name", "commit_id",
    "git_server_name", "hyperplane_user_email", "service_account_name", "group", "custom_message",
    "debuggable", "pinned", "preemptible", "priority_class", "run_parallel", "no_git_init",
    "no_hyperplane_commands", "image_hash",
)  # fmt: skip
RequestInfo = Info[RequestContext, None]


@strawberry.type
class BatchPayload:
    """How many jobs a mutation has changed."""

    count: int


async def _find_job(where: PipelineJobWhereUniqueInput) -> PipelineJob | None:
    job = await run_in_thread(submission.find_job, where.id)
    return None if job is None else to_pipeline_job(job)


async def _list_jobs(
    info: RequestInfo,
    where: PipelineJobWhereInput | None = None,
    order_by: list[PipelineJobOrderByWithRelationInput] | None = None,
    take: int | None = None,
    skip: int | None = None,
) -> Any:  # strawberry's types know no iterators as lists; the library below it does
    await run_in_thread(_check_variables, info, "where")
    async with info.context.reading:
        jobs = await run_in_thread(_read_list, info.context, where, order_by, take, skip)
    return _iterate(jobs)


def _read_list(context: RequestContext, *arguments: Any) -> list[Job]:
    """Return a list of jobs; none is read if the lists of the query have too many already."""
    context.count_jobs(0)
    jobs = job_filters.list_jobs(context.jobs, *arguments)
    context.count_jobs(len(jobs))
    return jobs


async def _iterate(jobs: Sequence[Job]) -> AsyncIterator[PipelineJob]:
    """Yield jobs; other requests are answered between them, as the fields of one take 0.4 ms."""
    for job in jobs:
        yield to_pipeline_job(job)
        await asyncio.sleep(0)


# The documented spelling of the argument.
async def _count_jobs(info: RequestInfo, where_overide: PipelineJobWhereInput | None = None) -> int:
    await run_in_thread(_check_variables, info, "whereOveride")
    context = info.context
    async with context.reading:
        jobs = await run_in_thread(
            job_filters.find_jobs, context.jobs, where_overide, "whereOveride"
        )
    return len(jobs)


async def _count_by_status(
    stat: JobStat, time_frame: TimeFrame = TimeFrame.TOTAL, status: JobStatus | None = None
) -> int:
    return await run_in_thread(count_by_status, stat, time_frame, status)


async def _list_users(where: HyperplaneUserWhereInput | None = None) -> list[HyperplaneUser]:
    email = where.email.equals if where is not None and where.email is not None else None
    return [HyperplaneUser(id=email, email=email)] if email else []


# Arguments of the documentation of 2023, with the opposites of two fields of the input.
async def _create_shakudo(
    info: RequestInfo,
    pipeline_yaml_path: str,
    job_name: str | None = None,
    job_type: str | None = None,
    timeout: int | None = None,
    active_timeout: int | None = None,
    max_retries: int | None = None,
    default_commands: bool | None = None,
    git_init: bool | None = None,
    commit_id: str | None = None,
    branch_name: str | None = None,
    parameters: ParameterCreateNestedManyWithoutPipelineJobInput | None = None,
) -> PipelineJob:
    given = PipelineJobCreateInput(
        pipeline_yaml_path=pipeline_yaml_path, job_name=job_name, job_type=job_type,
        timeout=timeout, active_timeout=active_timeout, max_retries=max_retries,
        commit_id=commit_id, branch_name=branch_name, parameters=parameters,
        no_git_init=None if git_init is None else not git_init,
        no_hyperplane_commands=None if default_commands is None else not default_commands,
    )  # fmt: skip
    return await _submit(info.context, given)


async def _create(info: RequestInfo, data: PipelineJobCreateInput) -> PipelineJob:
    return await _submit(info.context, data)


async def _create_with_alerting(
    info: RequestInfo,
    given: Annotated[PipelineJobWithAlertingCreateInput, strawberry.argument(name="input")],
) -> PipelineJob:
    return await _submit(info.context, given)


async def _update(where: PipelineJobWhereUniqueInput, data: PipelineJobUpdateInput) -> PipelineJob:
    return to_pipeline_job(await run_in_thread(submission.cancel, where.id, data))


async def _update_many(
    info: RequestInfo, where: PipelineJobWhereInput, data: PipelineJobUpdateInput
) -> BatchPayload:
    await run_in_thread(_check_variables, info, "where")
    return BatchPayload(count=await run_in_thread(submission.cancel_many, where, data))


def _check_variables(info: RequestInfo, argument: str) -> None:
    check(unset_variable_faults(info, argument))


async def _submit(context: RequestContext, given: PipelineJobCreateInput) -> PipelineJob:
    job, warnings = await run_in_thread(submission.submit, given, context.folder)
    context.warnings += warnings
    repeated: dict[str, Any] = {name: getattr(given, name) for name in _REPEATED}
    repeated["branch_name_or_commit"] = given.commit_id or given.branch_name
    if isinstance(given, PipelineJobWithAlertingCreateInput):
        repeated["notifications_enabled"] = given.notifications_enabled
        repeated["notification_targets"] = [
            NotificationTargetOfJob(notification_target=NotificationTarget(id=each, name=each))
            for each in given.notification_target_ids or ()
        ]
    return to_pipeline_job(job, repeated)


@strawberry.type
class Query(UnavailableQueries):
    """What can be asked about jobs."""

    pipeline_job: PipelineJob | None = strawberry.field(
        resolver=_find_job, description="The job with an id; null if there is none."
    )
    pipeline_jobs: list[PipelineJob] = strawberry.field(
        resolver=_list_jobs, description="At most 1,000 jobs, most recently submitted first."
    )
    count_jobs: int = strawberry.field(
        resolver=_count_jobs, description="How many jobs meet conditions."
    )
    get_job_stat: int = strawberry.field(
        resolver=_count_by_status,
        description="How many jobs have a status now, and have ended within a time if they have.",
    )
    hyperplane_users: list[HyperplaneUser] = strawberry.field(
        resolver=_list_users,
        description="A user with an email, which is the id, too: users have no effect here.",
    )


@strawberry.type
class Mutation(UnavailableMutations):
    """What can be done with jobs."""

    create_pipeline_job: PipelineJob = strawberry.mutation(
        resolver=_create, description="Submit a job, with the configured notifications."
    )
    create_pipeline_job_with_alerting: PipelineJob = strawberry.mutation(
        resolver=_create_with_alerting,
        description="Submit a job, and send a message if it fails.",
    )
    create_shakudo_pipeline_job: PipelineJob = strawberry.mutation(
        resolver=_create_shakudo, description="Submit a job, with the configured notifications."
    )
    update_pipeline_job: PipelineJob = strawberry.mutation(
        resolver=_update, description="Cancel a job."
    )
    update_many_pipeline_job: BatchPayload = strawberry.mutation(
        resolver=_update_many,
        description="Cancel the open jobs of this user on this machine that meet conditions.",
    )


class WarningsExtension(SchemaExtension):
    """Adds the warnings of submissions to the response."""

    def get_results(self) -> dict[str, Any]:
        """Return the extensions of the response."""
        warnings = self.execution_context.context.warnings
        return {"warnings": warnings} if warnings else {}


class JobSchema(strawberry.Schema):
    """Schema that writes only unexpected errors to the log."""

    def process_errors(
        self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None
    ) -> None:
        """Log the errors of a request."""
        for error in errors:
            log_unexpected(error)


def create_schema() -> JobSchema:
    """Return the schema."""
    return JobSchema(
        query=Query,
        mutation=Mutation,
        extensions=[
            lambda: MaxTokensLimiter(max_token_count=MOST_TOKENS),
            lambda: MaxAliasesLimiter(max_alias_count=_MOST_ALIASES),
            lambda: QueryDepthLimiter(max_depth=_MOST_DEPTH),
            WarningsExtension,
        ],
        config=StrawberryConfig(
            scalar_map={
                JobTime: strawberry.scalar(name="JobTime", serialize=write_time),
                **{kind: strawberry.scalar(name=name) for kind, name in PLATFORM_INPUTS.items()},
            }
        ),
    )
