"""Remove secrets from URLs and messages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_URL = re.compile(r"\w+://\S+")
#: The part of a text up to its first ``://``, or the scheme of a further URL, as in a chain.
_BEGIN = re.compile(r"(^.*?://|(?:::|\s)[\w+.-]+://)", re.DOTALL)
#: User, host and port before the first slash, if the password contains no slash.
_HOST = re.compile(r"(?:[^:@]*@)?(?:\[[^\]@]*\]|[^:@]*)(?::\d+)?")
#: In URLs other than HTTP a question mark may be part of a glob.
_QUERY = re.compile(r"\?[^?*]*=.*", re.DOTALL)
_HTTP_QUERY = re.compile(r"\?.*", re.DOTALL)


def redact_url(url: object) -> str:
    """Return a URL without secrets: user, password, and signature.

    Examples
    --------
    >>> redact_url("https://me:secret@host/a.csv?signature=abc")
    'https://host/a.csv'
    >>> redact_url("s3://me:sec/ret@bucket/a.csv")
    's3://***@bucket/a.csv'
    >>> redact_url("gs://bucket/day-?.csv"), redact_url("/data/a@b?c=d")
    ('gs://bucket/day-?.csv', '/data/a@b?c=d')
    """
    return _split_secrets(str(url))[0]


def describe_url(url: object) -> str:
    """Return the repr of a URL without secrets, of None or a number; otherwise the type.

    Examples
    --------
    >>> describe_url("https://me:secret@host/a.csv")
    "'https://host/a.csv'"
    >>> describe_url({"https://me:secret@host/a.csv": 1})
    'a dict'
    """
    if isinstance(url, str | os.PathLike):
        return repr(redact_url(os.fspath(url)))[:200]
    return repr(url) if url is None or isinstance(url, int | float) else f"a {type(url).__name__}"


def describe_error(
    error: BaseException, options: Mapping[str, Any] | None = None, url: object = ""
) -> str:
    """Return the type and message of an error, without secrets of URLs and storage options.

    Parameters
    ----------
    error : Exception
        The error of a store.
    options : mapping, optional
        The store's options.
    url : str
        The requested URL, parts of which the error may repeat.

    Examples
    --------
    >>> describe_error(OSError("403, s3cr3t, https://me:pw@host/a?sig=1"), {"token": "s3cr3t"})
    'OSError: 403, ***, https://host/a'
    """
    return redact_text(f"{type(error).__name__}: {error}", options, url)


def redact_text(text: str, options: Mapping[str, Any] | None = None, url: object = "") -> str:
    """Return a text without secrets of URLs and storage options; see :func:`describe_error`."""
    text = _URL.sub(lambda match: redact_url(match[0]), text)
    for secret in collect_secrets({"options": options, "url": _split_secrets(str(url))[1]}):
        text = text.replace(secret, "***")
    return text


def collect_secrets(storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return the texts in storage options that a message must not show, longest first."""
    secrets: list[str] = []
    pending: list[Any] = [storage_options]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pending.extend(value.values())
        elif isinstance(value, list | tuple):
            pending.extend(value)
        elif isinstance(value, str) and len(value) > 3:
            secrets.append(value)
    return sorted(secrets, key=len, reverse=True)


def _split_secrets(text: str) -> tuple[str, list[str]]:
    """Return a URL, or a chain of URLs, without its secrets, and the secrets."""
    first, *rest = _BEGIN.split(text)
    shown, secrets = [first], []
    for begin, after in zip(rest[::2], rest[1::2], strict=True):
        http = begin.lower().endswith(("http://", "https://"))
        user, place, query = _split_url(after, _HTTP_QUERY if http else _QUERY)
        # A slash in the user part may belong to the path, so show that something is hidden.
        shown += [begin, "***@" if "/" in user else "", place]
        password = user.partition(":")[2]
        # A library may have parsed a part of the password as host, port, or path.
        secrets += [user, password, *re.split("[:/?@]", password), query[1:]]
    return "".join(shown), secrets


def _split_url(after: str, query: re.Pattern[str]) -> tuple[str, str, str]:
    """Return the user with password, the host with path, and the query of a URL.

    A password may contain the characters that should end it: ``@``, ``/``, and ``?``.
    """
    match = query.search(after)
    before = after[: match.start()] if match else after
    host = re.split("[/?]", after, maxsplit=1)[0]
    if _HOST.fullmatch(host):
        user, at, _ = host.rpartition("@")
        return user, before[len(user + at) :], after[len(before) :]
    if "/" in before.rpartition("@")[2] and "@" in before:
        user, _, place = before.rpartition("@")
        return user, place, after[len(before) :]
    user, _, place = after.rpartition("@")
    match = query.search(place)
    return user, place[: match.start()] if match else place, match[0] if match else ""
