"""Checks of an account of Amazon that several services need: credentials, bucket and roles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from hyperplane.core.errors import Fault
from hyperplane.platforms.aws.errors import (
    DENIED_CODES,
    AwsCredentialsError,
    AwsError,
    AwsRequestError,
)
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.object_staging import parse_staging

#: Status of the answer for a bucket that does not exist.
_MISSING = 404


def check_credentials(session: AwsSession) -> list[Fault]:
    """Return a fault if there is no region, or if the credentials cannot be used."""
    try:
        if not session.region():
            advice = "set AWS_REGION, or the option region="
            return [Fault("region", "nothing", "a region of Amazon", advice)]
        session.call("sts", "get_caller_identity")
    except AwsError as error:
        return [Fault("credentials", "", str(error))]
    return []


def collect_faults(checks: Mapping[str, Callable[[], list[Fault]]]) -> list[Fault]:
    """Return the faults of all checks; one that fails is a fault with the name of the check."""
    faults: list[Fault] = []
    for name, check in checks.items():
        try:
            faults += check()
        except AwsError as error:
            faults.append(Fault(name, "", str(error)))
    return faults


def check_bucket(session: AwsSession, staging: str, *, create_bucket: bool = False) -> list[Fault]:
    """Return a fault if the bucket of the staging folder may not be used, or does not exist.

    With ``create_bucket`` the first upload creates one that does not exist.
    """
    try:
        session.call("s3", "head_bucket", Bucket=parse_staging(staging).bucket)
    except AwsRequestError as error:
        reasons = {_MISSING: "an existing bucket", 403: "a bucket that you may read and write"}
        if error.status not in reasons:
            raise
        if error.status == _MISSING and create_bucket:
            return []
        advice = "create it, or set the option create_bucket=true" * (error.status == _MISSING)
        return [Fault("staging", repr(staging), reasons[error.status], advice)]
    return []


def check_objects(session: AwsSession, name: str, urls: Sequence[str]) -> list[Fault]:
    """Return a fault for each object of S3 that does not exist, or cannot be read.

    ``name`` is that of the setting.
    """
    faults = []
    for url in urls:
        place = parse_staging(url)
        try:
            session.call("s3", "head_object", Bucket=place.bucket, Key=place.prefix.rstrip("/"))
        except AwsRequestError as error:
            reasons = {404: "an existing object", 403: "an object that you may read"}
            if error.status not in reasons:
                raise
            faults.append(Fault(name, repr(url), reasons[error.status]))
    return faults


def check_role(session: AwsSession, name: str, arn: str, trusted: str | None = None) -> list[Fault]:
    """Return a fault if a role does not exist, as far as it may be asked.

    Parameters
    ----------
    session : AwsSession
        Session of the requests.
    name, arn : str
        Name of the setting, and its value.
    trusted : str, optional
        Service that the role must trust, such as ``"glue.amazonaws.com"``.
    """
    try:
        role = session.call("iam", "get_role", RoleName=arn.rpartition("/")[2])["Role"]
    except AwsCredentialsError:
        raise
    except AwsRequestError as error:
        if error.code == "NoSuchEntity":
            return [Fault(name, repr(arn), "an existing role")]
        if error.code not in DENIED_CODES:
            raise
        return []
    if trusted is not None and trusted not in json.dumps(role.get("AssumeRolePolicyDocument")):
        advice = f"add the service {trusted} to its trust policy, with sts:AssumeRole"
        return [Fault(name, repr(arn), f"a role that {trusted} may assume", advice)]
    return []
