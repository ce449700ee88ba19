"""Check whether files and folders of Cloud Storage exist."""

from __future__ import annotations

from collections.abc import Sequence

from hyperplane.core.errors import Fault
from hyperplane.platforms.gcp.errors import DENIED, NOT_FOUND, GcpError, GcpRequestError
from hyperplane.platforms.gcp.session import GcpSession

_SCHEME = "gs://"
#: Characters with which a pattern begins.
_WILDCARDS = "*?["


def find_url_faults(option: str, urls: Sequence[str]) -> list[Fault]:
    """Return a fault for each URL that is not one of Cloud Storage."""
    return [
        Fault(option, repr(url), "a URL of Cloud Storage, such as gs://bucket/folder")
        for url in urls
        if not url.startswith(_SCHEME) or not _split(url)[0]
    ]


def find_missing_files(session: GcpSession, option: str, urls: Sequence[str]) -> list[Fault]:
    """Return a fault for each URL below which there is nothing, if you may list the bucket."""
    faults = []
    for url in urls:
        bucket, path = _split(url)
        stop = min((path.find(each) for each in _WILDCARDS if each in path), default=len(path))
        request = {"prefix": path[:stop], "maxResults": 1, "fields": "items(name)"}
        try:
            answer = session.call("storage", "objects.list", bucket=bucket, **request)
        except GcpError as error:
            faults += _explain(error, option, url)
        else:
            if not answer.get("items"):
                faults.append(Fault(option, repr(url), "files that exist"))
    return faults


def find_missing_bucket(session: GcpSession, option: str, url: str) -> list[Fault]:
    """Return a fault if there is no bucket of a URL."""
    request = {"bucket": _split(url)[0], "permissions": ["storage.objects.create"]}
    try:
        session.call("storage", "buckets.testIamPermissions", **request)
    except GcpError as error:
        return _explain(error, option, url)
    return []


def _explain(error: GcpError, option: str, url: str) -> list[Fault]:
    """Return the fault of a missing bucket; none if it may not be read."""
    status = error.status if isinstance(error, GcpRequestError) else 0
    if status == DENIED:
        return []
    allowed = "an existing bucket" if status == NOT_FOUND else f"a bucket that answers; {error}"
    return [Fault(option, repr(url), allowed)]


def _split(url: str) -> tuple[str, str]:
    bucket, _, path = url.removeprefix(_SCHEME).partition("/")
    return bucket, path
