"""What the rules look at: the steps as written and as simplified, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dask.dataframe.dask_expr.io import IO, FromMap, ReadParquet
from dask.dataframe.dask_expr.io._delayed import FromDelayed
from dask.utils import funcname

from hyperplane.collections.active_cluster import get_memory_per_thread
from hyperplane.collections.frames.explain.lazy_steps import make_lazy
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.collections.frames.explain.sizes import SizeEstimator, StepSize
from hyperplane.collections.frames.sources.reader import PartReader
from hyperplane.units import plural


@dataclass
class QueryPlan:
    """Everything that is known of the collections before they run.

    Parameters
    ----------
    written : list of list
        The steps of each collection as written, the last one first.
    nodes : list
        The steps that are left when Dask has simplified each collection; shared ones once.
    notes : list of str
        What could not be looked at, and why.
    """

    written_steps: list[list[Any]]
    simplified_steps: list[Any]
    notes: list[str]
    sizes: SizeEstimator = field(default_factory=SizeEstimator)
    memory_per_thread: int | None = field(default_factory=get_memory_per_thread)

    def add_note(self, what: str, error: Exception) -> None:
        """Keep what could not be looked at, and why."""
        self.notes.append(_format_note(what, error))

    def count_partitions(self) -> int:
        """Partitions of all sources."""
        total = 0
        for node in list_unique_steps(self.written_steps):
            if isinstance(node, IO):
                try:
                    total += node.npartitions
                except Exception as error:  # noqa: BLE001 - see `gather`
                    self.add_note(f"partitions of {format_source(node)} not counted", error)
        return total

    def estimate_size(self, expr: Any) -> StepSize | None:
        """Rows and bytes at a step, or None where they are not known."""
        return self.sizes.estimate(expr)

    def total_bytes(self, *exprs: Any) -> int | None:
        """Bytes of some steps together, or None where one is not known."""
        sizes = [self.estimate_size(expr) for expr in exprs]
        return sum(size.total for size in sizes if size) if all(sizes) else None

    def describe(self, *exprs: Any) -> str:
        """Partitions and bytes of steps, in words."""
        return " + ".join(
            f"{plural(expr.npartitions, 'partition')}, {self.estimate_size(expr) or 'unknown size'}"
            for expr in exprs
        )


@dataclass(frozen=True)
class StepFinding:
    """A finding and the step that it is about."""

    finding: Finding
    node: Any


def build_query_plan(exprs: Iterable[Any]) -> QueryPlan:
    """Look at expressions without computing anything.

    Parameters
    ----------
    exprs : iterable of dask.dataframe.dask_expr.Expr
        The expressions of the collections.

    Returns
    -------
    Facts
    """
    roots = [make_lazy(expr) for expr in exprs]
    simplified, notes = [], list[str]()
    for root in roots:
        try:
            simplified.append(root.simplify())
        except Exception as error:  # noqa: BLE001 - any step, also of other packages, may raise any
            simplified.append(root)
            notes.append(_format_note("looked at as written, without Dask's simplification", error))
    return QueryPlan(
        [list(walk_steps([root])) for root in roots], list(walk_steps(simplified)), notes
    )


def _format_note(what: str, error: Exception) -> str:
    """What failed; not the message of the error, which may hold an address with a password."""
    return f"{what}, because of {type(error).__name__}"


def walk_steps(roots: Iterable[Any]) -> Iterator[Any]:
    """All steps below some, each once and before those that it needs."""
    waiting, seen = list(roots), set[str]()
    while waiting:
        expr = waiting.pop()
        if expr._name not in seen:
            seen.add(expr._name)
            waiting.extend(expr.dependencies())
            yield expr


def list_unique_steps(written: Iterable[Iterable[Any]]) -> list[Any]:
    """The steps of several collections, shared ones once."""
    return list({node._name: node for nodes in written for node in nodes}.values())


def format_columns(names: Any) -> str:
    """Column names as code, one bare and several as a list."""
    listed = list(names) if isinstance(names, list | tuple) else [names]
    return repr(listed[0]) if len(listed) == 1 else repr(listed)


def format_function(function: Any) -> str:
    """A function's name as it can stand in code; ``f`` for a lambda."""
    name = funcname(function)
    return name if name.isidentifier() and name != "lambda" else "f"


def format_source(node: Any) -> str:
    """What a source or a repartition is called: the function, and the file that it reads."""
    if isinstance(node, ReadParquet):
        path = node.path[0] if isinstance(node.path, list | tuple) else node.path
        return f"read_parquet({_file_name(str(path))!r})"
    if isinstance(node, FromMap) and isinstance(node.func, PartReader):
        return f"read({_file_name(node.iterables[0][0].urls[0])!r})"
    if isinstance(node, FromMap):
        return (node.label or funcname(node.func)).removeprefix("_").replace("-", "_")
    if isinstance(node, FromDelayed):
        return str(node.delayed_container.operands[0].key).partition("-")[0]
    return {"FromPandas": "from_pandas", "LazyRepartition": "repartition"}.get(
        type(node).__name__, type(node).__name__
    )


def _file_name(url: str) -> str:
    """The last part of an address: what is before and after it may be a secret."""
    return url.partition("?")[0].rstrip("/").rpartition("/")[2]
