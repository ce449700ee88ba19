"""Check, before anything is submitted, what would make jobs on Google Cloud fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from hyperplane.core.errors import Fault
from hyperplane.platforms.gcp.errors import (
    DENIED,
    DISABLED_REASON,
    NOT_FOUND,
    GcpCredentialsError,
    GcpError,
    GcpRequestError,
)
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.spec.settings import GcpJobSettings

BUCKET_PERMISSIONS = ("storage.objects.create", "storage.objects.delete", "storage.objects.get")
#: Permission in the project to create the bucket.
CREATE_BUCKET = "storage.buckets.create"
_ACT_AS = "iam.serviceAccounts.actAs"
#: An image of Artifact Registry, whose existence can be checked.
_IMAGE = re.compile(
    r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[a-z0-9.:-]+)/(?P<repository>[a-z0-9-]+)/"
    r"(?P<name>[a-z0-9._/-]+)(?::(?P<tag>[A-Za-z0-9._-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


class CheckedService(NamedTuple):
    """A service that runs jobs.

    Parameters
    ----------
    api : str
        Name of its interface, such as ``"aiplatform"``.
    title : str
        Its name.
    jobs : str
        Path of the collection of jobs in the interface.
    permissions : tuple of str
        Permissions that the requests of a job need in the project.
    """

    api: str
    title: str
    jobs: str
    permissions: tuple[str, ...]


_Check = Callable[[GcpSession, GcpJobSettings, CheckedService], list[Fault]]


def check_service(
    session: GcpSession, settings: GcpJobSettings, service: CheckedService
) -> list[Fault]:
    """Return all faults of credentials, region, permissions, bucket, image and service account.

    Without credentials that is the only fault.
    """
    try:
        request = {"parent": session.location(), "pageSize": 1, "fields": "nextPageToken"}
        session.call(service.api, f"{service.jobs}.list", **request)
    except GcpCredentialsError as error:
        return [Fault("credentials", "", str(error))]
    except GcpError as error:
        faults = [_explain(error, session, settings, service)]
    else:
        faults = []
    checks: tuple[_Check, ...] = (
        _check_permissions,
        _check_bucket,
        _check_image,
        _check_service_account,
    )
    for check in checks:
        try:
            faults += check(session, settings, service)
        except GcpCredentialsError as error:
            return [Fault("credentials", "", str(error))]
        except GcpError as error:
            faults.append(Fault(check.__name__.removeprefix("_check_"), "", str(error)))
    return faults


def _explain(
    error: GcpError, session: GcpSession, settings: GcpJobSettings, service: CheckedService
) -> Fault:
    """Return the fault of a project or a region in which the service does not answer."""
    project = session.project()
    if not isinstance(error, GcpRequestError):  # no server has the name of the region
        allowed = f"a region of {service.title}; {error}"
        return Fault("region", repr(settings.region), allowed)
    if error.reason == DISABLED_REASON:
        advice = f"enable it with: gcloud services enable {service.api}.googleapis.com"
        return Fault("project", repr(project), f"a project that uses {service.title}", advice)
    if error.status == NOT_FOUND:
        return Fault("project", repr(project), "an existing project", str(error))
    advice = f"{error}{_describe_identity(session)}"
    return Fault("project", repr(project), "a project whose jobs you may list", advice)


def _describe_identity(session: GcpSession) -> str:
    """Return whose credentials are used, if they say it."""
    identity = session.identity()
    return f"; the credentials are those of {identity}" if identity else ""


def _check_permissions(
    session: GcpSession, settings: GcpJobSettings, service: CheckedService
) -> list[Fault]:
    """Return a fault with the permissions that are missing in the project, if it can be asked."""
    del settings
    missing = _find_missing(session, service.permissions)
    if not missing:
        return []
    allowed = f"a project in which you have {', '.join(missing)}{_describe_identity(session)}"
    return [Fault("project", repr(session.project()), allowed)]


def _find_missing(session: GcpSession, permissions: Sequence[str]) -> list[str]:
    """Return the permissions that are missing in the project; none if it cannot be asked."""
    try:
        answer = session.call(
            "cloudresourcemanager",
            "projects.testIamPermissions",
            resource=f"projects/{session.project()}",
            body={"permissions": list(permissions)},
        )
    except GcpRequestError as error:
        if error.status != DENIED:  # such as of a project that does not use the service
            raise
        return []
    return sorted(set(permissions) - set(answer.get("permissions", [])))


def _check_bucket(
    session: GcpSession, settings: GcpJobSettings, service: CheckedService
) -> list[Fault]:
    del service
    if settings.staging is None:  # nothing is uploaded
        return []
    bucket = parse_staging(str(settings.staging)).bucket
    try:
        answer = session.call(
            "storage",
            "buckets.testIamPermissions",
            bucket=bucket,
            permissions=list(BUCKET_PERMISSIONS),
        )
    except GcpRequestError as error:
        if error.status != NOT_FOUND:
            raise
        return _check_creation(session, settings)
    missing = sorted(set(BUCKET_PERMISSIONS) - set(answer.get("permissions", [])))
    if not missing:
        return []
    allowed = f"a bucket in which you have {', '.join(missing)}{_describe_identity(session)}"
    return [Fault("staging", repr(settings.staging), allowed)]


def _check_creation(session: GcpSession, settings: GcpJobSettings) -> list[Fault]:
    """Return a fault if a missing bucket shall not, or may not, be created by the first upload."""
    if not settings.create_bucket:
        advice = "create it, or set the option create_bucket=true"
        return [Fault("staging", repr(settings.staging), "an existing bucket", advice)]
    missing = _find_missing(session, (CREATE_BUCKET,))
    allowed = f"a project in which you have {CREATE_BUCKET}{_describe_identity(session)}"
    return [Fault("create_bucket", "true", allowed)] if missing else []


def _check_image(
    session: GcpSession, settings: GcpJobSettings, service: CheckedService
) -> list[Fault]:
    """Return a fault if an image of Artifact Registry does not exist; others are not checked."""
    del service
    match = _IMAGE.fullmatch(str(settings.image))
    if match is None:
        return []
    kind, version = ("versions", match["digest"]) if match["digest"] else ("tags", match["tag"])
    package = (
        f"projects/{match['project']}/locations/{match['location']}/repositories/"
        f"{match['repository']}/packages/{quote(match['name'], safe='')}"
    )
    try:
        session.call(
            "artifactregistry",
            f"projects.locations.repositories.packages.{kind}.get",
            name=f"{package}/{kind}/{version or 'latest'}",
        )
    except GcpRequestError as error:
        if error.status == NOT_FOUND:
            return [Fault("image", repr(settings.image), "an image of the registry", str(error))]
        if error.status != DENIED:
            raise
    return []


def _check_service_account(
    session: GcpSession, settings: GcpJobSettings, service: CheckedService
) -> list[Fault]:
    """Return a fault if the service account does not exist, or may not be used."""
    del service
    account = settings.service_account
    if account is None:
        return []
    try:
        answer = session.call(
            "iam",
            "projects.serviceAccounts.testIamPermissions",
            resource=f"projects/-/serviceAccounts/{account}",
            body={"permissions": [_ACT_AS]},
        )
    except GcpRequestError as error:
        if error.status == NOT_FOUND:
            return [Fault("service_account", repr(account), "an existing service account")]
        if error.status != DENIED:
            raise
        return []
    if _ACT_AS in answer.get("permissions", []):
        return []
    allowed = f"a service account for which you have {_ACT_AS}"
    return [Fault("service_account", repr(account), allowed)]
