"""Inputs of the mutations: the fields that published programs set.

Variables in queries state the names of these types, so that the types have those of the platform.
"""

from __future__ import annotations

import strawberry

from hyperplane.ui.graphql_api.sessions import JobParametersUpdateInput

_PLATFORM = "Of the platform; has no effect here."
_NOT_HERE = "Of the platform; an error here unless it is empty."


@strawberry.input
class HyperplaneUserWhereUniqueInput:
    """A user of the platform."""

    id: str | None = None
    email: str | None = None


@strawberry.input
class HyperplaneVCServerWhereUniqueInput:
    """A server of git of the platform."""

    id: str | None = None
    name: str | None = None


@strawberry.input
class BillingProjectWhereUniqueInput:
    """A project that the platform bills."""

    id: str | None = None
    name: str | None = None


@strawberry.input
class HyperplaneSecretWhereUniqueInput:
    """A secret of the platform."""

    id: str | None = None
    name: str | None = None


@strawberry.input
class HyperplaneServiceAccountWhereUniqueInput:
    """A service account of the platform."""

    id: str | None = None
    name: str | None = None


@strawberry.input
class HyperplaneUserConnectInput:
    """Connection of a job to a user."""

    connect: HyperplaneUserWhereUniqueInput | None = None


@strawberry.input
class HyperplaneVCServerConnectInput:
    """Connection of a job to a server of git."""

    connect: HyperplaneVCServerWhereUniqueInput | None = None


@strawberry.input
class BillingProjectConnectInput:
    """Connection of a job to a project."""

    connect: BillingProjectWhereUniqueInput | None = None


@strawberry.input
class HyperplaneSecretConnectInput:
    """Connection of a job to secrets."""

    connect: list[HyperplaneSecretWhereUniqueInput] | None = None


@strawberry.input
class HyperplaneServiceAccountConnectInput:
    """Connection of a job to a service account."""

    connect: HyperplaneServiceAccountWhereUniqueInput | None = None


@strawberry.input
class ParameterCreateWithoutPipelineJobInput:
    """A parameter of a job."""

    key: str
    value: str


@strawberry.input
class ParameterCreateNestedManyWithoutPipelineJobInput:
    """The parameters of a job."""

    create: list[ParameterCreateWithoutPipelineJobInput] | None = None


@strawberry.input(description="A job to submit.")
class PipelineJobCreateInput:
    """A job to submit."""

    pipeline_yaml_path: str = strawberry.field(
        description="Path of a pipeline file, a script or a notebook."
    )
    working_dir: str | None = strawberry.field(
        default=None, description="Folder of the steps; /tmp/git/monorepo is that of the server."
    )
    job_name: str | None = None
    job_type: str | None = None
    timeout: int | None = None
    active_timeout: int | None = None
    max_retries: int | None = None
    parameters: ParameterCreateNestedManyWithoutPipelineJobInput | None = None
    schedule: str | None = strawberry.field(default=None, description="Only immediate.")
    commit_id: str | None = strawberry.field(
        default=None, description="The commit that must be checked out."
    )
    branch_name: str | None = strawberry.field(
        default=None, description="The branch that should be checked out."
    )
    pod_spec: str | None = strawberry.field(default=None, description=_NOT_HERE)
    image_hash: str | None = strawberry.field(default=None, description=_NOT_HERE)
    exposed_port: str | None = strawberry.field(default=None, description=_NOT_HERE)
    hyperplane_secrets: HyperplaneSecretConnectInput | None = strawberry.field(
        default=None, description=_NOT_HERE
    )
    cloud_sql_proxy_enabled: bool | None = strawberry.field(default=None, description=_NOT_HERE)
    hyperplane_cloud_sql_proxy_id: str | None = strawberry.field(
        default=None, description=_NOT_HERE
    )
    max_retries_per_step: int | None = strawberry.field(default=None, description=_NOT_HERE)
    timeout_per_step: int | None = strawberry.field(default=None, description=_NOT_HERE)
    pipeline_type: str | None = strawberry.field(default=None, description=_PLATFORM)
    timezone: str | None = strawberry.field(default=None, description=_PLATFORM)
    git_server_name: str | None = strawberry.field(default=None, description=_PLATFORM)
    hyperplane_user_email: str | None = strawberry.field(default=None, description=_PLATFORM)
    hyperplane_user: HyperplaneUserConnectInput | None = strawberry.field(
        default=None, description=_PLATFORM
    )
    hyperplane_vc_server: HyperplaneVCServerConnectInput | None = strawberry.field(
        name="hyperplaneVCServer", default=None, description=_PLATFORM
    )
    billing_project: BillingProjectConnectInput | None = strawberry.field(
        default=None, description=_PLATFORM
    )
    hyperplane_service_account: HyperplaneServiceAccountConnectInput | None = strawberry.field(
        default=None, description=_PLATFORM
    )
    service_account_name: str | None = strawberry.field(default=None, description=_PLATFORM)
    group: str | None = strawberry.field(default=None, description=_PLATFORM)
    custom_message: str | None = strawberry.field(
        default=None, description="Text of the messages about the job."
    )
    priority_class: str | None = strawberry.field(default=None, description=_PLATFORM)
    debuggable: bool | None = strawberry.field(default=None, description=_PLATFORM)
    pinned: bool | None = strawberry.field(default=None, description=_PLATFORM)
    preemptible: bool | None = strawberry.field(default=None, description=_PLATFORM)
    run_parallel: bool | None = strawberry.field(default=None, description=_PLATFORM)
    no_git_init: bool | None = strawberry.field(default=None, description=_PLATFORM)
    no_hyperplane_commands: bool | None = strawberry.field(default=None, description=_PLATFORM)


@strawberry.input(description="A job to submit, and where to send a message if it fails.")
class PipelineJobWithAlertingCreateInput(PipelineJobCreateInput):
    """A job to submit, and where to send a message if it fails."""

    notifications_enabled: bool | None = strawberry.field(
        default=None, description="Whether to send a message; if null, as configured."
    )
    notification_target_ids: list[str] | None = strawberry.field(
        default=None,
        description="As in hyperplane.jobs.notify, whose targets are those of an empty list.",
    )


@strawberry.input
class PipelineJobWhereUniqueInput:
    """The id of a job."""

    id: str


@strawberry.input
class StringFieldUpdateOperationsInput:
    """A new value of a field."""

    set: str


@strawberry.input
class PipelineJobUpdateInput:
    """What is changed: only the status, to cancelled."""

    status: StringFieldUpdateOperationsInput | None = None
    parameters: JobParametersUpdateInput | None = strawberry.field(
        default=None, description="Of the platform; always an error here."
    )


@strawberry.input
class UserEmailFilter:
    """Condition of an email."""

    equals: str | None = None


@strawberry.input
class HyperplaneUserWhereInput:
    """Conditions of users."""

    email: UserEmailFilter | None = None
