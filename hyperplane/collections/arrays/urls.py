"""Parse the ``urls`` argument: a URL, a glob, a list of them, or nested lists."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import is_iterable
from hyperplane.objectstore.listing import find_entries, is_glob
from hyperplane.objectstore.redaction import describe_url

_ALLOWED = "a path, URL or glob of Zarr stores, or a list of them"


def expand_urls(urls: Any, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return one URL for each store, with globs expanded in natural order of the names.

    Raises
    ------
    RequestError
        When an entry is not a URL, or a glob has no match.
    """
    several = [urls] if isinstance(urls, str | os.PathLike) else urls
    if isinstance(several, Mapping | bytes) or not is_iterable(several):
        raise RequestError([Fault("urls", describe_url(urls), _ALLOWED)])
    found: list[str] = []
    faults: list[Fault] = []
    for number, url_or_list in enumerate(several):
        where = "urls" if isinstance(urls, str | os.PathLike) else f"urls[{number}]"
        try:
            found += _expand_url(url_or_list, where, storage_options)
        except RequestError as error:
            faults += error.faults
    if not found and not faults:
        faults = [Fault("urls", describe_url(urls), _ALLOWED + "; the list is empty")]
    if faults:
        raise RequestError(faults)
    return found


def flatten_nested_urls(urls: Any) -> Any:
    """Return nested URLs as lists of text, their depth, and a flat list.

    Examples
    --------
    >>> flatten_nested_urls([["a", "b"], ["c", "d"]])
    ([['a', 'b'], ['c', 'd']], 2, ['a', 'b', 'c', 'd'])
    """
    if isinstance(urls, str | os.PathLike) or not isinstance(urls, Sequence) or not urls:
        allowed = "a list of paths or URLs, or nested lists of equal depth"
        raise RequestError([Fault("urls", describe_url(urls), allowed)])
    if all(isinstance(url_or_list, str | os.PathLike) for url_or_list in urls):
        row = [os.fspath(url_or_list) for url_or_list in urls]
        return row, 1, row
    inner = [flatten_nested_urls(url_or_list) for url_or_list in urls]
    depths = {depth for _, depth, _ in inner}
    if len(depths) > 1:
        raise RequestError([Fault("urls", describe_url(urls), "nested lists of equal depth")])
    tree = [url_or_list for url_or_list, _, _ in inner]
    return tree, depths.pop() + 1, [url for _, _, row in inner for url in row]


def _expand_url(
    url_or_list: Any, where: str, storage_options: Mapping[str, Any] | None
) -> list[str]:
    if not isinstance(url_or_list, str | os.PathLike) or not os.fspath(url_or_list):
        raise RequestError([Fault(where, describe_url(url_or_list), _ALLOWED)])
    url = os.fspath(url_or_list)
    if not is_glob(url):
        return [url]
    if "::" in url:
        raise RequestError(
            [
                Fault(
                    where,
                    describe_url(url),
                    "one URL for each store; globs in chained URLs (::) are not supported",
                )
            ]
        )
    try:
        return [place.address for place in find_entries(url, storage_options)]
    except RequestError as error:
        raise RequestError([replace(fault, where=where) for fault in error.faults]) from error
