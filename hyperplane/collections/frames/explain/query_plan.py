"""Input of the rules: steps of collections, as written and simplified, and their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dask.utils import funcname

from hyperplane.collections.frames.explain.lazy_steps import make_lazy
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.collections.frames.explain.sizes import SizeEstimator, StepSize
from hyperplane.core.active_cluster import get_memory_per_thread
from hyperplane.core.dask_internals.frames import IO, FromDelayed, FromMap, ReadParquet
from hyperplane.core.units import plural
from hyperplane.formats.reader import PartitionReader


@dataclass
class QueryPlan:
    """Steps of collections, their sizes and the memory of the cluster."""

    #: The steps of each collection as written, the last step first.
    written_steps: list[list[Any]]
    #: The steps of all collections after Dask's simplification, without duplicates.
    simplified_steps: list[Any]
    #: Parts of the plan that could not be examined, each with the type of the error.
    notes: list[str]
    sizes: SizeEstimator = field(default_factory=SizeEstimator)
    memory_per_thread: int | None = field(default_factory=get_memory_per_thread)

    def add_note(self, subject: str, error: Exception) -> None:
        """Record a part of the plan that could not be examined, and the error."""
        self.notes.append(_format_note(subject, error))

    def count_partitions(self) -> int:
        """Return the number of partitions of all sources."""
        total = 0
        for node in list_unique_steps(self.written_steps):
            if isinstance(node, IO):
                try:
                    total += node.npartitions
                except Exception as error:  # noqa: BLE001 - see build_query_plan
                    self.add_note(f"partitions of {format_source(node)} not counted", error)
        return total

    def estimate_size(self, expr: Any) -> StepSize | None:
        """Return the rows and bytes of a step, or None if unknown."""
        return self.sizes.estimate(expr)

    def total_bytes(self, *exprs: Any) -> int | None:
        """Return the total bytes of steps, or None if one is unknown."""
        sizes = [self.estimate_size(expr) for expr in exprs]
        return sum(size.total for size in sizes if size) if all(sizes) else None

    def describe(self, *exprs: Any) -> str:
        """Return the partitions and bytes of steps as text."""
        return " + ".join(
            f"{plural(expr.npartitions, 'partition')}, {self.estimate_size(expr) or 'unknown size'}"
            for expr in exprs
        )


@dataclass(frozen=True)
class StepFinding:
    """A finding and its step, a node of the expression."""

    finding: Finding
    node: Any


def build_query_plan(exprs: Iterable[Any]) -> QueryPlan:
    """Collect the steps of expressions without computing anything."""
    roots = [make_lazy(expr) for expr in exprs]
    simplified, notes = [], list[str]()
    for root in roots:
        try:
            simplified.append(root.simplify())
        except Exception as error:  # noqa: BLE001 - steps of other packages may raise anything
            simplified.append(root)
            notes.append(_format_note("examined as written, without Dask's simplification", error))
    return QueryPlan(
        [list(walk_steps([root])) for root in roots], list(walk_steps(simplified)), notes
    )


def _format_note(subject: str, error: Exception) -> str:
    """Return a note without the error's message, which may contain a URL with a password."""
    return f"{subject}, because of {type(error).__name__}"


def walk_steps(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield steps and all their dependencies without duplicates, from the last steps down."""
    waiting, seen = list(roots), set[str]()
    while waiting:
        expr = waiting.pop()
        if expr._name not in seen:
            seen.add(expr._name)
            waiting.extend(expr.dependencies())
            yield expr


def list_unique_steps(written: Iterable[Iterable[Any]]) -> list[Any]:
    """Return the steps of several collections without duplicates."""
    return list({node._name: node for nodes in written for node in nodes}.values())


def format_columns(names: Any) -> str:
    """Return column names as code: a single one as a string, several as a list."""
    columns = list(names) if isinstance(names, list | tuple) else [names]
    return repr(columns[0]) if len(columns) == 1 else repr(columns)


def format_function(function: Any) -> str:
    """Return the name of a function as code; ``f`` for a lambda."""
    name = funcname(function)
    return name if name.isidentifier() and name != "lambda" else "f"


def format_source(node: Any) -> str:
    """Return the function that made a source or a repartition, with the name of its file."""
    if isinstance(node, ReadParquet):
        path = node.path[0] if isinstance(node.path, list | tuple) else node.path
        return f"read_parquet({_get_file_name(str(path))!r})"
    if isinstance(node, FromMap) and isinstance(node.func, PartitionReader):
        return f"read({_get_file_name(node.iterables[0][0].urls[0])!r})"
    if isinstance(node, FromMap):
        return (node.label or funcname(node.func)).removeprefix("_").replace("-", "_")
    if isinstance(node, FromDelayed):
        return str(node.delayed_container.operands[0].key).partition("-")[0]
    return {"FromPandas": "from_pandas", "LazyRepartition": "repartition"}.get(
        type(node).__name__, type(node).__name__
    )


def _get_file_name(url: str) -> str:
    """Return the last part of the path of a URL; other parts may contain secrets."""
    return url.partition("?")[0].rstrip("/").rpartition("/")[2]
