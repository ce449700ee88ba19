"""URLs and messages without what may be secret in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_URL = re.compile(r"\w+://\S+")
_USER = re.compile(r"//[^/@]*@")
#: Elsewhere than over HTTP a question mark may be part of a glob.
_QUERY = re.compile(r"\?[^?*]*=.*")
#: The user with the password, or the query.
_PARTS = re.compile(r"://([^/@]+)@|\?([^?*]+=.*)")


def shown(url: object) -> str:
    """A URL without what may be secret in it: a user, a password, a signature.

    Examples
    --------
    >>> shown("https://me:secret@host/a.csv?signature=abc")
    'https://host/a.csv'
    >>> shown("gs://bucket/day-?.csv"), shown("/data/a@b?c=d")
    ('gs://bucket/day-?.csv', '/data/a@b?c=d')
    """
    text = str(url)
    if "://" not in text:
        return text
    text = _USER.sub("//", text)
    return text.partition("?")[0] if re.search("https?://", text) else _QUERY.sub("", text)


def said(error: BaseException, options: Mapping[str, Any] | None = None, url: object = "") -> str:
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
    text = _URL.sub(lambda found: shown(found[0]), f"{type(error).__name__}: {error}")
    parts = [part for found in _PARTS.findall(str(url)) for part in found]
    for secret in secrets_of({"options": options, "url": parts}):
        text = text.replace(secret, "***")
    return text


def secrets_of(storage_options: Mapping[str, Any] | None) -> list[str]:
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
