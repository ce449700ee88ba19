"""Check, before anything is submitted, what would make jobs of AWS Batch fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hyperplane.core.errors import Fault
from hyperplane.platforms.aws.account_check import (
    check_bucket,
    check_credentials,
    check_role,
    collect_faults,
)
from hyperplane.platforms.aws.batch import BatchApi
from hyperplane.platforms.aws.errors import DENIED_CODES, AwsError, AwsRequestError
from hyperplane.platforms.aws.quota import VcpuQuota, read_vcpu_quota
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import AwsBatchSettings

#: An image of Amazon's registry, whose existence can be checked.
_ECR = re.compile(
    r"(?P<account>[0-9]{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/"
    r"(?P<name>[a-z0-9._/-]+)(?::(?P<tag>[A-Za-z0-9._-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
#: Memory of an instance that containers cannot have, as a fraction: the system and the agent.
_SYSTEM_MEMORY = 0.03
#: A type such as m5.2xlarge; others are families, whose sizes are not asked.
_INSTANCE_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")


class ComputeEnvironment(NamedTuple):
    """Limits of a compute environment of a queue.

    Parameters
    ----------
    name : str
        Its name.
    max_cores : float
        Maximum vCPUs of all its containers together.
    instances : tuple of TaskSize
        Sizes of its instance types; empty if they are unknown.
    quota : VcpuQuota or None
        Quota of the account that its containers count for; None for an unknown type. That of EC2
        does not concern instances of all families.
    is_fargate : bool
        Whether it has no instances.
    """

    name: str
    max_cores: float
    instances: tuple[TaskSize, ...] = ()
    quota: VcpuQuota | None = None
    is_fargate: bool = False

    def fits(self, size: TaskSize) -> bool:
        """Return whether it can run a container of a size."""
        if size.cores > self.max_cores or (self.is_fargate and size.cores > self.quota_cores):
            return False
        return not self.instances or any(
            size.cores <= each.cores
            and size.memory <= each.memory * (1 - _SYSTEM_MEMORY)
            and size.gpus <= each.gpus
            for each in self.instances
        )

    @property
    def quota_cores(self) -> float:
        """Number of vCPUs of the quota; infinite if it is unknown."""
        amount = None if self.quota is None else self.quota.amount
        return float("inf") if amount is None else amount

    def describe(self) -> str:
        """Return the limits as text."""
        text = f"at most {self.max_cores:g} vCPU in {self.name}"
        if self.is_fargate and self.quota_cores < self.max_cores:
            text = f"at most {self.quota_cores:g} vCPU, the quota of the account, in {self.name}"
        if not self.instances:
            return text
        sizes = ", ".join(f"{each.cores:g} vCPU with {each.memory} MiB" for each in self.instances)
        return f"{text}, whose instances have {sizes}"


class ServiceReport(NamedTuple):
    """Faults of the settings, and the compute environments of the queue."""

    faults: list[Fault]
    environments: tuple[ComputeEnvironment, ...] = ()


def check_service(session: AwsSession, settings: AwsBatchSettings) -> ServiceReport:
    """Ask credentials, queue, compute environments, image, bucket and roles; submit nothing."""
    faults = check_credentials(session)
    if faults:  # the answers to all other requests would be the same
        return ServiceReport(faults)
    faults, environments = _check_queue(session, settings)
    faults += collect_faults(
        {
            "bucket": lambda: check_bucket(
                session, str(settings.staging), create_bucket=settings.create_bucket
            ),
            "image": lambda: _check_image(session, settings),
            "roles": lambda: _check_roles(session, settings),
        }
    )
    return ServiceReport(faults, tuple(environments))


def _check_queue(
    session: AwsSession, settings: AwsBatchSettings
) -> tuple[list[Fault], list[ComputeEnvironment]]:
    api, asked = BatchApi(session), repr(settings.queue)
    try:
        queue = api.describe_queue(str(settings.queue))
        if queue is None:
            allowed = f"a job queue of AWS Batch in {session.region()}"
            return [Fault("queue", asked, allowed)], []
        names = [order["computeEnvironment"] for order in queue["computeEnvironmentOrder"]]
        described = api.describe_environments(names)
        faults = list(_queue_faults(queue, described, settings))
        usable = [each for each in described if _is_usable(each)]
        return faults, [_read_environment(session, each) for each in usable]
    except AwsError as error:
        return [Fault("queue", "", str(error))], []


def _queue_faults(
    queue: Mapping[str, Any], described: Sequence[Mapping[str, Any]], settings: AwsBatchSettings
) -> Iterator[Fault]:
    asked = repr(settings.queue)
    state = f"{queue.get('state')} and {queue.get('status')}"
    if not _is_usable(queue):
        yield Fault("queue", asked, f"an enabled queue; it is {state}")
    if described and not any(map(_is_usable, described)):
        states = "; ".join(map(_describe_state, described))
        yield Fault("queue", asked, f"a queue with an enabled compute environment; {states}")
    kinds = {str(each.get("computeResources", {}).get("type", "")) for each in described}
    is_fargate = {kind.startswith("FARGATE") for kind in kinds if kind}
    wanted = settings.platform == "fargate"
    if is_fargate and is_fargate != {wanted}:
        found = "fargate" if True in is_fargate else "ec2"
        yield Fault("platform", repr(settings.platform), f"{found}, as the queue {asked} has")


def _is_usable(described: Mapping[str, Any]) -> bool:
    """Return whether jobs start in a queue or compute environment; also while it is updated."""
    return described.get("state") == "ENABLED" and described.get("status") in ("VALID", "UPDATING")


def _describe_state(environment: Mapping[str, Any]) -> str:
    reason = f": {environment['statusReason']}" if environment.get("statusReason") else ""
    state = f"{environment.get('state')} and {environment.get('status')}"
    return f"{environment['computeEnvironmentName']} is {state}{reason}"


def _read_environment(session: AwsSession, described: Mapping[str, Any]) -> ComputeEnvironment:
    resources = described.get("computeResources", {})
    types = [str(each) for each in resources.get("instanceTypes", [])]
    instances: list[TaskSize] = []
    if types and all(_INSTANCE_TYPE.fullmatch(each) for each in types):
        try:
            answer = session.call("ec2", "describe_instance_types", InstanceTypes=types)
        except AwsError:  # without the permission, sizes are not compared
            answer = {"InstanceTypes": []}
        instances = [
            TaskSize(
                each["VCpuInfo"]["DefaultVCpus"],
                each["MemoryInfo"]["SizeInMiB"],
                sum(gpu.get("Count", 0) for gpu in each.get("GpuInfo", {}).get("Gpus", [])),
            )
            for each in answer["InstanceTypes"]
        ]
    kind = str(resources.get("type", ""))
    return ComputeEnvironment(
        str(described["computeEnvironmentName"]),
        float(resources.get("maxvCpus", 1e9)),
        tuple(instances),
        read_vcpu_quota(session, kind),
        kind.startswith("FARGATE"),
    )


def _check_image(session: AwsSession, settings: AwsBatchSettings) -> list[Fault]:
    """Return a fault if an image of Amazon's registry does not exist; others are not checked."""
    match = _ECR.fullmatch(str(settings.image))
    if match is None or match["region"] != session.region():
        return []
    identity = {"imageDigest": match["digest"]} if match["digest"] else {}
    identity = identity or {"imageTag": match["tag"] or "latest"}
    try:
        session.call(
            "ecr",
            "describe_images",
            registryId=match["account"],
            repositoryName=match["name"],
            imageIds=[identity],
        )
    except AwsRequestError as error:
        if error.code in ("RepositoryNotFoundException", "ImageNotFoundException"):
            return [Fault("image", repr(settings.image), "an image of the registry", str(error))]
        if error.code not in DENIED_CODES:
            raise
    return []


def _check_roles(session: AwsSession, settings: AwsBatchSettings) -> list[Fault]:
    """Return a fault for each role that does not exist, as far as it may be asked."""
    roles = {name: getattr(settings, name) for name in ("job_role", "execution_role")}
    return [
        fault
        for name, arn in roles.items()
        if arn is not None
        for fault in check_role(session, name, arn)
    ]
