"""What tells the graph of a job from those of others, and the data that it reads.

The same job has the same structure in each run, whatever the number of its partitions and the names
of its files. Schedulers without this package receive this module by value, so it imports no other
module of the package.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import dask.sizeof
from dask.utils import key_split

Key = Any
#: Groups of tasks beyond which a graph is not recognized again.
MOST_GROUPS = 2000
#: Most tasks without inputs that are searched for files.
MOST_SOURCES = 1000
#: Depth to which arguments of a task are searched, and most items of one argument.
_DEPTH, _ITEMS = 10, 200
#: Longest text among the arguments that counts, as the name of a column.
_LONGEST = 200
#: Texts that differ between runs: paths, URLs, and names with the hash of their content.
_VARIABLE = re.compile(r"[/\\]|[0-9a-f]{12}")
_TIME = r"\d\d:?(?:\d\d:?(?:\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?"
_MONTH, _DAY = r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_DATE = rf"(?:19|20)\d\d(?:-?{_MONTH}-?{_DAY}|-{_MONTH}|-?W[0-5]\d(?:-?[1-7])?)(?:[T ]{_TIME})?"
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
#: Parts of texts that differ between runs: dates and times of ISO 8601, and numbers. Those within
#: names count, as in columns such as "x1" or "ward-7".
_DATES_AND_NUMBERS = re.compile(
    rf"(?<!\d)(?:{_DATE}|\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)(?!\d)"
    rf"|(?<![\w.-]){_NUMBER}(?![\w-]|\.\w)"
)
#: Packages whose functions are known by their names; the code of other functions counts, too.
_LIBRARIES = {
    "_operator", "builtins", "dask", "distributed", "fsspec", "hyperplane", "numpy", "operator",
    "pandas", "polars", "pyarrow", "scipy", "sklearn", "tlz", "toolz", "xarray",
}  # fmt: skip

#: Prefix of tasks that begin a save; tasks that read and write a partition depend on them, and are
#: sources nevertheless.
_SAVE_START = "save-start"

#: Packages with tables and arrays.
_DATA = {"numpy", "pandas", "polars", "pyarrow"}


def group_of(key: Key) -> str:
    """Return the name of the group of a task, without the number of its partition.

    Examples
    --------
    >>> group_of(("sum-1f", 0, 3)), group_of("load-0123456789abcdef0123456789abcdef")
    ('sum-1f', 'load')
    """
    if isinstance(key, tuple) and key and isinstance(key[0], str):
        return key[0]
    return str(key_split(key))


def find_sources(nodes: Mapping[Key, Any]) -> list[Any]:
    """Return the tasks of a graph that depend on no other, except on those that begin a save."""
    return [
        node
        for key, node in nodes.items()
        if len(node.dependencies) <= 1
        if all(_begins_save(other) for other in node.dependencies)
        if not _begins_save(key)
    ]


def _begins_save(key: Key) -> bool:
    return isinstance(key, str) and key_split(key) == _SAVE_START


def find_structure(nodes: Mapping[Key, Any]) -> str:
    """Return the digest of the structure of a graph; empty if it has too many groups of tasks.

    Parameters
    ----------
    nodes : mapping
        Tasks of Dask by their keys, with ``dependencies``.
    """
    firsts: dict[str, Key] = {}
    dependencies: dict[str, set[str]] = {}
    for key, node in nodes.items():
        group = group_of(key)
        first = firsts.get(group)
        if first is None:
            if len(firsts) >= MOST_GROUPS:
                return ""
            firsts[group], dependencies[group] = key, set()
        elif _is_before(key, first):
            firsts[group] = key
        dependencies[group].update(map(group_of, node.dependencies))
    groups = {
        group: _Group(
            str(key_split(key)),
            dependencies[group] - {group},
            frozenset(_describe(nodes[key], not dependencies[group] - {group, _SAVE_START})),
        )
        for group, key in firsts.items()
    }
    levels = _find_levels(groups)
    lines = [
        repr((group.prefix, sorted(_find_needed(name, groups, levels)), sorted(group.texts)))
        for name, group in groups.items()
        if name not in levels
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:24]


class _Group(NamedTuple):
    """Prefix of a group of tasks, the groups that it needs, and texts about its first task."""

    prefix: str
    needed: set[str]
    texts: frozenset[str]


def _find_levels(groups: Mapping[str, _Group]) -> set[str]:
    """Return the groups that are one more level of a reduction, which more partitions need."""
    levels = {name for name, group in groups.items() if group.prefix.endswith("-partial")}
    for group in groups.values():
        for name in group.needed:
            other = groups.get(name)
            if other and (other.prefix, other.texts) == (group.prefix, group.texts):
                levels.add(name)
    return levels


def _find_needed(name: str, groups: Mapping[str, _Group], levels: set[str]) -> set[str]:
    """Return the prefixes of the groups that a group needs, without levels of reductions."""
    found: set[str] = set()
    pending, seen = list(groups[name].needed), {name}
    while pending:
        other = pending.pop()
        if other in seen or other not in groups:
            continue
        seen.add(other)
        if other in levels:
            pending += groups[other].needed
        else:
            found.add(groups[other].prefix)
    return found


def _is_before(key: Key, other: Key) -> bool:
    """Whether a task has a smaller number of its partition than another one of its group."""
    try:
        return bool(key < other)
    except TypeError:
        return str(key) < str(other)


def _describe(node: Any, is_source: bool) -> Iterator[str]:
    """Yield texts about a task: functions, texts among its arguments, and sizes of sources."""
    files = set(_find_locations(node)) if is_source else set()
    for value in _walk(node):
        if isinstance(value, str):
            if len(value) <= _LONGEST and not _VARIABLE.search(value) and value not in files:
                yield f"text {_DATES_AND_NUMBERS.sub('#', value)}"
        elif callable(value):
            yield f"function {_describe_function(value)}"
        elif is_source and not files and _is_shape(value):
            # Chunks that are made have no file whose size could be compared.
            yield f"shape {value!r}"


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and 0 < len(value) < 20 and all(type(x) is int for x in value)


def _walk(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Yield the functions, texts and tuples of numbers of a task, also those of inner tasks."""
    if depth <= 0:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | set | frozenset | dict):
        if _is_shape(value):
            yield value
            return
        items = [*value, *value.values()] if isinstance(value, dict) else value
        if isinstance(value, set | frozenset) and len(value) > _ITEMS:
            return  # which of its items come first differs between processes
        for item in list(items)[:_ITEMS]:
            yield from _walk(item, depth - 1)
    elif hasattr(value, "dependencies") and hasattr(value, "key"):  # a task
        for name in ("func", "args", "kwargs", "value"):
            yield from _walk(getattr(value, name, None), depth - 1)
    elif callable(value):
        yield value
        if not isinstance(value, type):  # partial and methodcaller
            for name in ("func", "args", "method"):
                yield from _walk(getattr(value, name, None), depth - 1)


def _describe_function(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    name = name or type(function).__qualname__
    module = str(getattr(function, "__module__", None) or "").partition(".")[0]
    code = getattr(function, "__code__", None)
    if code is None or module in _LIBRARIES:
        return str(name)
    return f"{name} {_digest_code(code)}"


def _digest_code(code: CodeType) -> str:
    digest = hashlib.sha256(code.co_code)
    for constant in code.co_consts:
        digest.update(_describe_constant(constant).encode())
    digest.update(repr(code.co_names).encode())
    return digest.hexdigest()[:16]


def _describe_constant(constant: Any) -> str:
    """Return a text that is the same in each process; the order of a set is another in each."""
    if isinstance(constant, CodeType):
        return _digest_code(constant)
    if isinstance(constant, tuple):
        return f"({', '.join(map(_describe_constant, constant))})"
    if isinstance(constant, frozenset):
        return f"{{{', '.join(sorted(map(_describe_constant, constant)))}}}"
    return repr(constant)


def find_paths(value: Any) -> Iterator[str]:
    """Yield the texts in a task that may be paths of local files."""
    return (text for text in _find_locations(value) if "://" not in text)


def _find_locations(value: Any, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the texts in a task that may be paths of files, or URLs."""
    if isinstance(value, str):
        if os.sep in value and len(value) < 4096 and "\n" not in value:
            yield value.removeprefix("file://")
        return
    if isinstance(value, os.PathLike):
        yield os.fsdecode(value)
        return
    if depth <= 0:
        return
    if isinstance(value, list | tuple | set):
        for item in list(value)[:_ITEMS]:
            yield from _find_locations(item, depth - 1)
    elif isinstance(value, dict):
        for item in list(value.values())[:_ITEMS]:
            yield from _find_locations(item, depth - 1)
    # Not attributes of the value: columns of a data frame may have these names.
    elif hasattr(type(value), "args") and hasattr(type(value), "dependencies"):
        yield from _find_locations(getattr(value, "args", ()), depth)
        yield from _find_locations(getattr(value, "kwargs", None) or {}, depth)
    elif type(value).__name__ == "FragmentWrapper":  # a part of a Parquet data set
        yield str(value.fragment.path)
    elif type(value).__name__ in ("OpenFile", "LocalFileOpener"):
        yield str(getattr(value, "path", ""))
    elif type(value).__name__ == "UnreadPartition":
        yield from _find_locations(value.partition, depth - 1)
    elif hasattr(type(value), "urls") and hasattr(type(value), "scan"):  # a partition of `read`
        yield from (str(url).removeprefix("file://") for url in value.urls)


class SourceSizes:
    """Bytes that the tasks without inputs of a graph read.

    Of many tasks every n-th is searched. A file that several of these read is counted once.

    Parameters
    ----------
    sources : sequence
        Tasks of Dask that depend on no other.
    """

    def __init__(self, sources: Sequence[Any]) -> None:
        step = max(1, len(sources) // MOST_SOURCES)
        searched = sources[::step]
        self._uses: Counter[str] = Counter()
        self._scale = len(sources) / max(1, len(searched))
        held = 0
        for node in searched:
            locations = set(_find_locations(node))
            self._uses.update(path for path in locations if "://" not in path)
            if not locations:
                held += _measure_data(node)
        self._held = round(held * self._scale)

    @property
    def has_files(self) -> bool:
        """Whether there are files whose sizes are not known yet."""
        return bool(self._uses)

    def measure(self) -> int:
        """Return the bytes of local files and of data in the graph; it may wait for a disk."""
        total = 0.0
        for path, uses in self._uses.items():
            total += _measure_file(path) * (self._scale if uses == 1 else 1.0)
        return self._held + round(total)


def _measure_file(path: str) -> int:
    try:
        return 0 if Path(path).is_dir() else Path(path).stat().st_size
    except (OSError, ValueError):  # a text that is no path
        return 0


def _measure_data(value: Any, depth: int = _DEPTH) -> int:
    """Return the size of the data that a task has in the graph, also in inner tasks."""
    if depth <= 0 or isinstance(value, str):
        return 0
    if _is_data(value):
        # Not a global name: a dispatcher is pickled with all that is registered in it, while this
        # module is sent by value.
        return int(dask.sizeof.sizeof(value))
    if isinstance(value, list | tuple):
        return sum(_measure_data(item, depth - 1) for item in value[:_ITEMS])
    if isinstance(value, dict):
        return sum(_measure_data(item, depth - 1) for item in list(value.values())[:_ITEMS])
    if hasattr(value, "dependencies") and hasattr(value, "key"):  # a task
        parts = [getattr(value, name, None) for name in ("args", "kwargs", "value")]
        return sum(_measure_data(part, depth - 1) for part in parts)
    return 0


def _is_data(value: Any) -> bool:
    """Whether a value is a table or an array."""
    module = type(value).__module__.partition(".")[0]
    return module in _DATA and hasattr(value, "shape")
