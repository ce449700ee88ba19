"""Check, before anything is submitted, what would make runs of EMR Serverless fail."""

from __future__ import annotations

from hyperplane.core.errors import Fault
from hyperplane.platforms.aws.account_check import (
    check_bucket,
    check_credentials,
    check_objects,
    check_role,
    collect_faults,
)
from hyperplane.platforms.aws.emr_serverless import EmrServerlessApi
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.spec.settings import EmrServerlessSettings

#: Service that the role of runs must trust.
_SERVICE = "emr-serverless.amazonaws.com"
#: States of an application in which runs start.
_STARTED = ("STARTING", "STARTED")
#: States of one that a run starts, unless that is turned off.
_STARTABLE = ("CREATING", "CREATED", "STOPPING", "STOPPED")


def check_emr_serverless(session: AwsSession, settings: EmrServerlessSettings) -> list[Fault]:
    """Ask credentials, application, bucket, role and Python files; submit nothing."""
    faults = check_credentials(session)
    if faults:  # the answers to all other requests would be the same
        return faults
    return collect_faults(
        {
            "application": lambda: _check_application(session, str(settings.application)),
            "bucket": lambda: check_bucket(
                session, str(settings.staging), create_bucket=settings.create_bucket
            ),
            "role": lambda: check_role(session, "role", str(settings.role), _SERVICE),
            "python_files": lambda: check_objects(session, "python_files", settings.python_files),
        }
    )


def _check_application(session: AwsSession, name: str) -> list[Fault]:
    """Return a fault if an application does not exist, is not for Spark, or starts no runs."""
    found, asked = EmrServerlessApi(session).read_application(name), repr(name)
    if found is None:
        return [Fault("application", asked, f"an application in {session.region()}")]
    if str(found.get("type")).upper() != "SPARK":
        return [Fault("application", asked, f"one of type Spark; it is of {found.get('type')}")]
    state = str(found.get("state"))
    starts = found.get("autoStartConfiguration", {}).get("enabled", True)
    if state in _STARTED or (starts and state in _STARTABLE):
        return []
    advice = f"start it with 'aws emr-serverless start-application --application-id {name}'"
    return [Fault("application", asked, f"one that starts runs; it is {state}", advice)]
