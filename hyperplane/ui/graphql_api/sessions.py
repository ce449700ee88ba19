"""Calls of the platform that have no counterpart here, and what to use instead.

They are part of the schema, so that programs get this answer and not one about an unknown field.
Their inputs are scalars with the names of the platform's types: whatever fields a query sets are
valid.
"""

from __future__ import annotations

from typing import NewType, NoReturn

import strawberry
from graphql import GraphQLError

SessionCreateInput = NewType("SessionCreateInput", object)
SessionUpdateInput = NewType("SessionUpdateInput", object)
SessionWhereInput = NewType("SessionWhereInput", object)
SessionWhereUniqueInput = NewType("SessionWhereUniqueInput", object)
SessionOrderByInput = NewType("SessionOrderByInput", object)
ParameterUpdateInput = NewType("ParameterUpdateInput", object)
ParameterWhereUniqueInput = NewType("ParameterWhereUniqueInput", object)
JobParametersUpdateInput = NewType("JobParametersUpdateInput", object)
#: Names of the inputs on the platform. Queries with variables state them.
PLATFORM_INPUTS = {
    SessionCreateInput: "HyperHubSessionCreateInput",
    SessionUpdateInput: "HyperHubSessionUpdateInput",
    SessionWhereInput: "HyperHubSessionWhereInput",
    SessionWhereUniqueInput: "HyperHubSessionWhereUniqueInput",
    SessionOrderByInput: "HyperHubSessionOrderByWithRelationInput",
    ParameterUpdateInput: "ParameterUpdateInput",
    ParameterWhereUniqueInput: "ParameterWhereUniqueInput",
    JobParametersUpdateInput: "ParameterUpdateManyWithoutPipelineJobNestedInput",
}  # fmt: skip
_NO_SESSIONS = (
    "sessions of the platform do not exist here: start Jupyter yourself, with 'jupyter lab'. "
    "'hyperplane cluster list' lists the clusters of your notebooks, 'hyperplane cluster stop' "
    "stops one"
)
_FIXED_PARAMETERS = (
    "the parameters of a job are fixed when it is submitted: cancel it with updatePipelineJob and "
    "submit it again with createPipelineJob; those of a schedule are replaced by 'hyperplane job "
    "schedule'"
)
_ERROR = "Of the platform; always an error here."


@strawberry.type
class HyperHubSession:
    """A session of the platform, of which there are none here."""

    id: str
    hyperplane_user_email: str | None
    status: str
    image_type: str | None
    j_lab_url: str | None
    notebook_uri: str | None = strawberry.field(name="notebookURI")
    estimated_cost: float | None
    department: str | None
    resource_cpu_limit: str | None = strawberry.field(name="resourceCPUlimit")
    resource_ram_limit: str | None = strawberry.field(name="resourceRAMlimit")
    resource_cpu_request: str | None = strawberry.field(name="resourceCPUrequest")
    resource_ram_request: str | None = strawberry.field(name="resourceRAMrequest")
    gpu_request: str | None
    start_time: str | None
    completion_time: str | None


@strawberry.type
class ParameterReference:
    """A parameter that was changed, of which there are none here."""

    id: str
    key: str
    value: str


def refuse(name: str, text: str) -> NoReturn:
    """Raise the error of a call that has no counterpart here."""
    raise GraphQLError(f"{name}: {text}", extensions={"error": "NotAvailable"})


def refuse_parameters(name: str) -> NoReturn:
    """Raise the error of a change of parameters."""
    refuse(name, _FIXED_PARAMETERS)


def _list_sessions(
    where: SessionWhereInput | None = None,
    order_by: SessionOrderByInput | None = None,
    take: int | None = None,
    skip: int | None = None,
) -> list[HyperHubSession] | None:
    del where, order_by, take, skip
    refuse("hyperHubSessions", _NO_SESSIONS)


def _find_session(where: SessionWhereUniqueInput) -> HyperHubSession | None:
    del where
    refuse("hyperHubSession", _NO_SESSIONS)


def _count_sessions(
    where: SessionWhereInput | None = None, where_overide: SessionWhereInput | None = None
) -> int | None:
    del where, where_overide
    refuse("countHyperHubSessions", _NO_SESSIONS)


def _create_session(data: SessionCreateInput) -> HyperHubSession | None:
    del data
    refuse("createHyperHubSession", _NO_SESSIONS)


def _update_session(
    where: SessionWhereUniqueInput, data: SessionUpdateInput
) -> HyperHubSession | None:
    del where, data
    refuse("updateHyperHubSession", _NO_SESSIONS)


def _update_parameter(
    where: ParameterWhereUniqueInput, data: ParameterUpdateInput
) -> ParameterReference | None:
    del where, data
    refuse_parameters("updateParameter")


@strawberry.type
class UnavailableQueries:
    """Queries that are always answered with an error."""

    hyper_hub_sessions: list[HyperHubSession] | None = strawberry.field(
        resolver=_list_sessions, description=_ERROR
    )
    hyper_hub_session: HyperHubSession | None = strawberry.field(
        resolver=_find_session, description=_ERROR
    )
    count_hyper_hub_sessions: int | None = strawberry.field(
        resolver=_count_sessions, description=_ERROR
    )


@strawberry.type
class UnavailableMutations:
    """Mutations that are always answered with an error."""

    create_hyper_hub_session: HyperHubSession | None = strawberry.mutation(
        resolver=_create_session, description=_ERROR
    )
    update_hyper_hub_session: HyperHubSession | None = strawberry.mutation(
        resolver=_update_session, description=_ERROR
    )
    update_parameter: ParameterReference | None = strawberry.mutation(
        resolver=_update_parameter, description=_ERROR
    )
