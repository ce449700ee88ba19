"""Files that a save must not remove: those that are no data, and those that the rows come from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from dask.delayed import Delayed

from hyperplane.core.dask_internals.tasks import Task
from hyperplane.core.errors import OutputExists
from hyperplane.core.units import plural
from hyperplane.storage.manifest import Manifest
from hyperplane.storage.object_kinds import find_format, is_format_of
from hyperplane.storage.published_state import FOREIGN

#: Names of the metadata of Zarr stores, whose other files have names of any kind.
ZARR_METADATA_NAMES = ("zarr.json", ".zgroup", ".zarray")
#: Suffixes of compressed files.
COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".snappy")


def check_replaceable(url: str, published: Manifest | None) -> None:
    """Raise an error if a save to a URL would remove files that are no data.

    A save publishes a whole folder: what was there before is removed.

    Raises
    ------
    OutputExists
        If the folder has files that hyperplane did not save and that have no format of tables.
    """
    if published is None or published.kind != FOREIGN:
        return
    names = published.details.get("added", [part.name for part in published.parts])
    if any(PurePosixPath(name).name in ZARR_METADATA_NAMES for name in names):
        return
    others = [name for name in names if name and not _is_data(name)]
    if others:
        more = f" and {plural(len(others) - 3, 'other file')}" if len(others) > 3 else ""
        raise OutputExists(
            url,
            f"has files that hyperplane did not save and that are no tables: "
            f"{', '.join(others[:3])}{more}; a save would remove them: save to another URL, or "
            "move them away",
        )


def check_not_source(url: str, obj: Any) -> None:
    """Raise an error if the rows of a dataframe are read from files that a save would replace.

    The save would succeed, and every further computation of the dataframe would fail.

    Raises
    ------
    OutputExists
        If a partition of ``hyperplane.dataframe.read``, or of rows that are computed from it, has
        a file at the URL or below it.
    """
    below = f"{url.rstrip('/')}/"
    if any(each == url or each.startswith(below) for each in _list_source_urls(obj)):
        raise OutputExists(
            url,
            "has the files that the rows are read from, which could not be computed again: save "
            "to another URL",
        )


def _list_source_urls(obj: Any) -> Iterator[str]:
    """Yield the URLs of the partitions in the expression and the tasks of a dataframe."""
    for step in obj.expr.walk() if hasattr(obj, "expr") else ():
        # Other steps may raise errors for names that they do not have.
        if "iterables" in getattr(step, "_parameters", ()):
            yield from _list_urls(list(step.iterables))
        graphs = {
            id(task.dask): task.dask for task in step.operands if isinstance(task, Delayed)
        }  # tasks of helpers
        for graph in graphs.values():
            for task in graph.values():
                yield from _list_urls(task)


def _list_urls(value: Any) -> Iterator[str]:
    """Yield the URLs of the partitions among the arguments of a task, and of tasks in them."""
    if isinstance(value, Task):
        value = [*value.args, *value.kwargs.values()]
    elif isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _list_urls(each)
    elif hasattr(type(value), "scan"):
        yield from getattr(value, "urls", ())


def _is_data(name: str) -> bool:
    """Return whether a file has a format of tables, or a name that programs give to markers."""
    path = PurePosixPath(name)
    if path.name.startswith(("_", ".")):  # such as _SUCCESS, or .part-0.parquet.crc
        return True
    suffix = path.suffix.lower()
    if suffix in COMPRESSIONS:
        suffix = PurePosixPath(path.stem).suffix.lower()
    return is_format_of("dataframe", find_format(suffix))
