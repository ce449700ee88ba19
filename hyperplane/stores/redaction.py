"""URLs and messages without what may be secret in them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_URL = re.compile(r"\w+://\S+")
#: Where a URL begins: the text itself, or a URL that is chained to another.
_BEGIN = re.compile(r"(^.*?://|(?:::|\s)[\w+.-]+://)", re.DOTALL)
#: What is before the first slash, when no password is in it.
_HOST = re.compile(r"(?:[^:@]*@)?(?:\[[^\]@]*\]|[^:@]*)(?::\d+)?")
#: Elsewhere than over HTTP a question mark may be part of a glob.
_QUERY = re.compile(r"\?[^?*]*=.*", re.DOTALL)
_HTTP_QUERY = re.compile(r"\?.*", re.DOTALL)


def redact_url(url: object) -> str:
    """A URL without what may be secret in it: a user, a password, a signature.

    Examples
    --------
    >>> shown("https://me:secret@host/a.csv?signature=abc")
    'https://host/a.csv'
    >>> shown("s3://me:sec/ret@bucket/a.csv")
    's3://***@bucket/a.csv'
    >>> shown("gs://bucket/day-?.csv"), shown("/data/a@b?c=d")
    ('gs://bucket/day-?.csv', '/data/a@b?c=d')
    """
    return _split_secrets(str(url))[0]


def describe_url(url: object) -> str:
    """What was given as a URL, as a message may say it; of what is none only the type.

    Examples
    --------
    >>> given("https://me:secret@host/a.csv"), given({"https://me:secret@host/a.csv": 1})
    ("'https://host/a.csv'", 'a dict')
    """
    if isinstance(url, str | os.PathLike):
        return repr(redact_url(os.fspath(url)))[:200]
    return repr(url) if url is None or isinstance(url, int | float) else f"a {type(url).__name__}"


def describe_error(
    error: BaseException, options: Mapping[str, Any] | None = None, url: object = ""
) -> str:
    """What an error says, without what may be secret in URLs and in storage options.

    Parameters
    ----------
    error : Exception
        Of a store.
    options : mapping, optional
        What the store was given.
    url : str
        What was asked of it; the error may tell parts of it.

    Examples
    --------
    >>> said(OSError("403, s3cr3t, https://me:pw@host/a?sig=1"), {"token": "s3cr3t"})
    'OSError: 403, ***, https://host/a'
    """
    return redact_text(f"{type(error).__name__}: {error}", options, url)


def redact_text(text: str, options: Mapping[str, Any] | None = None, url: object = "") -> str:
    """A text without what may be secret in URLs and in storage options; see :func:`said`."""
    text = _URL.sub(lambda found: redact_url(found[0]), text)
    for secret in collect_secrets({"options": options, "url": _split_secrets(str(url))[1]}):
        text = text.replace(secret, "***")
    return text


def collect_secrets(storage_options: Mapping[str, Any] | None) -> list[str]:
    """Texts in storage options that a message must not show."""
    found: list[str] = []
    todo: list[Any] = [storage_options]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            todo.extend(one.values())
        elif isinstance(one, list | tuple):
            todo.extend(one)
        elif isinstance(one, str) and len(one) > 3:
            found.append(one)
    return sorted(found, key=len, reverse=True)


def _split_secrets(text: str) -> tuple[str, list[str]]:
    """A URL, or a chain of them, without its secrets; and these."""
    first, *rest = _BEGIN.split(text)
    shown, secrets = [first], []
    for begin, after in zip(rest[::2], rest[1::2], strict=True):
        http = begin.lower().endswith(("http://", "https://"))
        user, place, query = _split_url(after, _HTTP_QUERY if http else _QUERY)
        # Where a slash is hidden it may have been one of the path; so it is said.
        shown += [begin, "***@" if "/" in user else "", place]
        password = user.partition(":")[2]
        # A library may have taken a part of the password for the host, the port or the path.
        secrets += [user, password, *re.split("[:/?@]", password), query[1:]]
    return "".join(shown), secrets


def _split_url(after: str, query: re.Pattern[str]) -> tuple[str, str, str]:
    """The user with the password, the host with the path, and the query of a URL.

    A password may have the characters that should end it: ``@``, ``/`` and ``?``.
    """
    found = query.search(after)
    before = after[: found.start()] if found else after
    host = re.split("[/?]", after, maxsplit=1)[0]
    if _HOST.fullmatch(host):
        user, at, _ = host.rpartition("@")
        return user, before[len(user + at) :], after[len(before) :]
    if "/" in before.rpartition("@")[2] and "@" in before:
        user, _, place = before.rpartition("@")
        return user, place, after[len(before) :]
    user, _, place = after.rpartition("@")
    found = query.search(place)
    return user, place[: found.start()] if found else place, found[0] if found else ""
