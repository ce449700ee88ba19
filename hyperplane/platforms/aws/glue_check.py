"""Check, before anything is submitted, what would make jobs of AWS Glue fail."""

from __future__ import annotations

from hyperplane.core.errors import Fault
from hyperplane.platforms.aws.account_check import (
    check_bucket,
    check_credentials,
    check_objects,
    check_role,
    collect_faults,
)
from hyperplane.platforms.aws.glue import GlueApi
from hyperplane.platforms.aws.session import AwsSession
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
            "bucket": lambda: check_bucket(
                session, str(settings.staging), create_bucket=settings.create_bucket
            ),
            "role": lambda: check_role(session, "role", str(settings.role), _SERVICE),
            "python_files": lambda: check_objects(session, "python_files", settings.python_files),
        }
    )


def _check_access(session: AwsSession) -> list[Fault]:
    GlueApi(session).check_access()
    return []
