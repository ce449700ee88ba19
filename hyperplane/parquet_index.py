"""Dask dataframes of Parquet files whose named index Dask cannot read.

pandas stores a named index of consecutive numbers as a range in the metadata of the file, without a
column. The partitions that ``dask.dataframe.read_parquet`` makes of such a file fail with
``KeyError: '[nan] not in index'`` whatever is computed of them (seen with dask 2026.8.0), but for
those with ``filters=`` on a column of the files, which Dask reads in another way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hyperplane.errors import Fault, check
from hyperplane.stores.redaction import redact_url


def check_index(collection: Any, where: str) -> None:
    """Refuse a collection of Dask that cannot be computed because of such an index.

    Parameters
    ----------
    collection : object
        A collection of ``dask.dataframe``; what is none has no such index.
    where : str
        The argument that it is, for the message.

    Raises
    ------
    RequestError
        With the file, the index, and two ways to read it.
    """
    check(_faults(collection, where))


def _faults(collection: Any, where: str) -> Iterator[Fault]:
    expression: Any = getattr(collection, "expr", None)
    if not hasattr(expression, "walk"):
        return
    for node in expression.walk():
        name = None
        with suppress(Exception):  # what Dask keeps of a file may have another form in a release
            name = _lost_index(node)
        if name is not None:
            path = node.path if isinstance(node.path, str) else node.path[0]
            yield Fault(
                where,
                f"read_parquet({redact_url(path)!r}) of Dask",
                f"an index that Dask can read; {name!r} is a range in the file's metadata",
                f"read the file with hyperplane.dataframe.read, which gives {name!r} as a column, "
                "or without it, with dask.dataframe.read_parquet(..., index=False)",
            )


def _lost_index(node: Any) -> str | None:
    """The name of an index that a node of an expression reads in vain."""
    if type(node).__name__ != "ReadParquetFSSpec":  # the other reader leaves the index out
        return None
    info: Mapping[str, Any] = node._dataset_info
    if info["index"] != [None] or _reads_fragments(info):
        return None
    stored = json.loads((info["schema"].metadata or {}).get(b"pandas", b"{}"))
    for entry in stored.get("index_columns", ()):
        if isinstance(entry, dict) and entry.get("kind") == "range" and entry.get("name"):
            return str(entry["name"])
    return None


def _reads_fragments(info: Mapping[str, Any]) -> bool:
    """Whether Dask reads the files as fragments of a dataset, without their index."""
    partitioning = info["kwargs"].get("dataset", {}).get("partitioning")
    if partitioning and not isinstance(partitioning, str | list):
        return True
    filtered = {condition[0] for condition in _conditions(info["filters"])}
    return not filtered <= set(info["partition_names"])


def _conditions(filters: Any) -> Iterator[tuple[Any, ...]]:
    for each in filters or ():
        if isinstance(each, tuple):
            yield each
        else:
            yield from each
