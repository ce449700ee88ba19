"""Detection of Parquet files with a named RangeIndex, which Dask cannot read.

pandas stores a named RangeIndex in the metadata of the file, without a column. Every computation
on ``dask.dataframe.read_parquet`` of such a file fails with ``KeyError: '[nan] not in index'``
(dask 2026.8.0), unless ``filters=`` selects on a column of the files, which uses another reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hyperplane.core.errors import Fault, check
from hyperplane.objectstore.redaction import redact_url


def check_index(collection: Any, where: str) -> None:
    """Raise a RequestError for a Dask dataframe that cannot be computed because of its index.

    Other objects pass. ``where`` is the name of the argument. The error names the file, the index
    and two ways to read the file.
    """
    check(_find_faults(collection, where))


def _find_faults(collection: Any, where: str) -> Iterator[Fault]:
    if not hasattr(type(collection), "expr"):  # of the type, because a Delayed has any attribute
        return
    expression: Any = collection.expr
    for node in expression.walk():
        name = None
        with suppress(Exception):  # Dask's internal attributes may differ between releases
            name = _find_range_index(node)
        if name is not None:
            path = node.path if isinstance(node.path, str) else node.path[0]
            yield Fault(
                where,
                f"read_parquet({redact_url(path)!r}) of Dask",
                f"an index that Dask can read; {name!r} is a range in the file's metadata",
                f"read the file with hyperplane.dataframe.read, which returns {name!r} as a "
                "column, or without the index: dask.dataframe.read_parquet(..., index=False)",
            )


def _find_range_index(node: Any) -> str | None:
    """Return the name of the index that an expression node cannot read; None if there is none."""
    if type(node).__name__ != "ReadParquetFSSpec":  # the other reader omits the index
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
    """Whether Dask reads the files as fragments of a dataset, which omits their index."""
    partitioning = info["kwargs"].get("dataset", {}).get("partitioning")
    if partitioning and not isinstance(partitioning, str | list):
        return True
    filtered = {condition[0] for condition in _iterate_conditions(info["filters"])}
    return not filtered <= set(info["partition_names"])


def _iterate_conditions(filters: Any) -> Iterator[tuple[Any, ...]]:
    for entry in filters or ():
        if isinstance(entry, tuple):
            yield entry
        else:
            yield from entry
