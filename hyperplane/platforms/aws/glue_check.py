"""Check, before anything is submitted, what would make jobs of AWS Glue fail."""

from __future__ import annotations

from hyperplane.core.errors import Fault
from hyperplane.platforms.aws.account_check import (
    check_bucket,
    check_credentials,
    check_role,
    collect_faults,
)
from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.glue import GlueApi
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.spec.settings import GlueSettings

#: Service that the role of jobs must trust.
_SERVICE = "glue.amazonaws.com"


def check_glue(session: AwsSession, settings: GlueSettings) -> list[Fault]:
    """Ask credentials, Glue, bucket, role and Python files; submit nothing."""
    faults = check_credentials(session)
    if faults:  # the answers to all other requests would be the same
        return faults
    return collect_faults(
        {
            "glue": lambda: _check_access(session),
            "bucket": lambda: check_bucket(session, str(settings.staging)),
            "role": lambda: check_role(session, "role", str(settings.role), _SERVICE),
            "python_files": lambda: _check_files(session, settings),
        }
    )


def _check_access(session: AwsSession) -> list[Fault]:
    GlueApi(session).check_access()
    return []


def _check_files(session: AwsSession, settings: GlueSettings) -> list[Fault]:
    """Return a fault for each file for Python that does not exist, or cannot be read."""
    faults = []
    for url in settings.python_files:
        place = parse_staging(url)
        try:
            session.call("s3", "head_object", Bucket=place.bucket, Key=place.prefix.rstrip("/"))
        except AwsRequestError as error:
            reasons = {404: "an existing object", 403: "an object that you may read"}
            if error.status not in reasons:
                raise
            faults.append(Fault("python_files", repr(url), reasons[error.status]))
    return faults
