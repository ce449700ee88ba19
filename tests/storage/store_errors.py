"""Errors of object stores as gcsfs and s3fs raise them after their own retries.

gcsfs keeps the status and drops the headers of an answer, Retry-After among them. s3fs raises an
OSError whose cause has both; a cause is lost when an error is pickled.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

#: Kinds of transient errors.
TRANSIENT = ("429", "500", "502", "503", "reset", "closed", "timeout")
#: Kinds of permanent errors: no permission, no bucket, no space.
PERMANENT = ("403", "404", "ENOSPC")

_Make = Callable[[str, str, "int | None"], Exception]


def make(kind: str, like: str, url: str, retry_after: int | None = None) -> Exception:
    """Return an error of one kind, as the library of one store raises it."""
    if kind == "ENOSPC":
        return OSError(errno.ENOSPC, "No space left on device", url)
    return _MAKERS[like](kind, url, retry_after)


def _plain(kind: str, url: str, retry_after: int | None) -> Exception:
    """Return the error of the operating system."""
    del retry_after
    known: dict[str, Exception] = {
        "reset": ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        "closed": ConnectionAbortedError(errno.ECONNABORTED, "Connection was closed"),
        "timeout": TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
        "403": PermissionError(errno.EACCES, "Permission denied", url),
        "404": FileNotFoundError(errno.ENOENT, "No such bucket", url),
        "exists": FileExistsError(errno.EEXIST, "File exists", url),
    }
    return known.get(kind) or OSError(errno.EBUSY, f"status {kind}", url)


def _gcs(kind: str, url: str, retry_after: int | None) -> Exception:
    del retry_after
    import aiohttp
    import requests
    from fsspec.exceptions import FSTimeoutError
    from gcsfs.retry import HttpError

    known: dict[str, Callable[[], Exception]] = {
        "502": requests.exceptions.ProxyError,
        "reset": lambda: aiohttp.ClientOSError(errno.ECONNRESET, "Connection reset by peer"),
        "closed": aiohttp.ServerDisconnectedError,
        "timeout": FSTimeoutError,
        "403": lambda: OSError(f"Forbidden: {url}\nno permission"),
        "404": lambda: FileNotFoundError(url),
        "exists": lambda: FileExistsError(url),
    }
    if kind in known:
        return known[kind]()
    return HttpError({"code": int(kind), "message": "try again"})


_S3_CODES = {
    "429": "TooManyRequests",
    "500": "InternalError",
    "502": "BadGateway",
    "503": "SlowDown",
    "403": "AccessDenied",
    "404": "NoSuchBucket",
    "exists": "PreconditionFailed",
}


def _s3(kind: str, url: str, retry_after: int | None) -> Exception:
    import botocore.exceptions
    from s3fs.errors import translate_boto_error

    if kind == "reset":
        cause = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        return botocore.exceptions.EndpointConnectionError(endpoint_url=url, error=cause)
    if kind == "closed":
        return botocore.exceptions.ConnectionClosedError(endpoint_url=url)
    if kind == "timeout":
        return botocore.exceptions.ReadTimeoutError(endpoint_url=url)
    details = {"Code": _S3_CODES[kind], "Message": "the store says no"}
    if kind == "exists":
        details["Condition"] = "If-None-Match"
    answer = {
        "HTTPStatusCode": 412 if kind == "exists" else int(kind),
        "HTTPHeaders": {} if retry_after is None else {"retry-after": str(retry_after)},
    }
    error = botocore.exceptions.ClientError({"Error": details, "ResponseMetadata": answer}, "Put")
    found: Exception = translate_boto_error(error)
    return found


_MAKERS: dict[str, _Make] = {"plain": _plain, "gcs": _gcs, "s3": _s3}
