"""Check, before anything is submitted, what would make steps of EMR fail."""

from __future__ import annotations

import json
import shlex

from hyperplane.core.errors import Fault
from hyperplane.platforms.aws.account_check import (
    check_bucket,
    check_credentials,
    check_objects,
    check_role,
    collect_faults,
)
from hyperplane.platforms.aws.emr import EmrApi
from hyperplane.platforms.aws.errors import DENIED_CODES, AwsCredentialsError, AwsRequestError
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.spec.settings import EmrSettings

#: Service that the service role must trust, and that of the role of the machines.
_SERVICE, _MACHINES = "elasticmapreduce.amazonaws.com", "ec2.amazonaws.com"
#: States of a cluster to which steps can be added.
_USABLE = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING")


def check_emr(session: AwsSession, settings: EmrSettings) -> list[Fault]:
    """Ask credentials, EMR, bucket, roles, machines and files; submit nothing."""
    faults = check_credentials(session)
    if faults:  # the answers to all other requests would be the same
        return faults
    checks = {
        "bucket": lambda: check_bucket(
            session, str(settings.staging), create_bucket=settings.create_bucket
        ),
        "python_files": lambda: check_objects(session, "python_files", settings.python_files),
    }
    if settings.cluster:
        return collect_faults({"emr": lambda: _check_cluster(session, settings), **checks})
    scripts = [shlex.split(text)[0] for text in settings.bootstrap_actions]
    return collect_faults(
        {
            "emr": lambda: _check_release(session, settings),
            **checks,
            "bootstrap_actions": lambda: check_objects(session, "bootstrap_actions", scripts),
            "service_role": lambda: check_role(
                session, "service_role", settings.service_role, _SERVICE
            ),
            "instance_profile": lambda: _check_profile(session, settings),
        }
    )


def _check_cluster(session: AwsSession, settings: EmrSettings) -> list[Fault]:
    """Return a fault if no steps can be added to the cluster."""
    cluster = str(settings.cluster)
    described = EmrApi(session).describe_cluster(cluster)
    if described is None:
        return [Fault("cluster", repr(cluster), f"a cluster of EMR in {session.region()}")]
    state = str(described.get("Status", {}).get("State"))
    if state not in _USABLE:
        return [Fault("cluster", repr(cluster), f"a cluster that runs; it is {state}")]
    return []


def _check_release(session: AwsSession, settings: EmrSettings) -> list[Fault]:
    """Return a fault if clusters may not be listed, or if a release or machine is not known."""
    api = EmrApi(session)
    api.check_access()
    release = repr(settings.release)
    try:
        types = api.instance_types(settings.release)
    except AwsRequestError as error:
        if error.code in DENIED_CODES:
            return []
        return [Fault("release", release, "a release of EMR", str(error))]
    if types and settings.instance_type not in types:
        allowed = f"a machine that {release} supports in {session.region()}"
        return [Fault("instance_type", repr(settings.instance_type), allowed)]
    return []


def _check_profile(session: AwsSession, settings: EmrSettings) -> list[Fault]:
    """Return a fault if the instance profile does not exist, as far as it may be asked."""
    name = settings.instance_profile
    try:
        answer = session.call("iam", "get_instance_profile", InstanceProfileName=name)
    except AwsCredentialsError:
        raise
    except AwsRequestError as error:
        if error.code == "NoSuchEntity":
            advice = "create it, such as with 'aws emr create-default-roles'"
            return [Fault("instance_profile", repr(name), "an existing instance profile", advice)]
        if error.code not in DENIED_CODES:
            raise
        return []
    roles = answer["InstanceProfile"].get("Roles", [])
    if not any(_MACHINES in json.dumps(role.get("AssumeRolePolicyDocument")) for role in roles):
        allowed = f"an instance profile with a role that {_MACHINES} may assume"
        return [Fault("instance_profile", repr(name), allowed)]
    return []
