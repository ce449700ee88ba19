"""``explain``: the expensive steps of collections, found before they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import dask.dataframe as dd

from hyperplane.collections.frames.explain.groups import find_groupby_shuffles, find_large_results
from hyperplane.collections.frames.explain.joins import find_joins
from hyperplane.collections.frames.explain.partitioning import (
    find_interleaved_concats,
    find_measuring_repartitions,
    find_unsuitable_partition_sizes,
)
from hyperplane.collections.frames.explain.query_plan import (
    QueryPlan,
    StepFinding,
    build_query_plan,
    list_unique_steps,
)
from hyperplane.collections.frames.explain.repeated_work import (
    find_repeated_reads,
    find_repeated_shuffles,
    find_shared_steps,
)
from hyperplane.collections.frames.explain.report import Explanation, Finding
from hyperplane.collections.frames.explain.row_operations import (
    find_python_calls,
    find_unknown_division_lookups,
)
from hyperplane.collections.frames.explain.sorts import find_sorts
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.formats.parquet.pandas_index import check_index

__all__ = ["Explanation", "Finding", "explain"]

#: Rules for steps that move or compute all data, the most expensive kinds first.
_MOVING_RULES = (find_measuring_repartitions, find_sorts, find_joins, find_groupby_shuffles)
_OTHER_RULES = (
    find_repeated_shuffles,
    find_large_results,
    find_repeated_reads,
    find_unsuitable_partition_sizes,
    find_interleaved_concats,
    find_python_calls,
    find_unknown_division_lookups,
)


@check_call
def explain(*collections: Any) -> Explanation:
    """Find the expensive steps of Dask dataframes before they run; computes nothing.

    It examines the expressions of the collections as written and as simplified by Dask. Joins
    and sorts for which Dask moves no rows are not reported. To estimate sizes it reads the footers
    of at most 32 Parquet files of each source.

    Parameters
    ----------
    *collections : dask.dataframe.DataFrame, Series, Index or Scalar
        The collections to examine; pass several if they will be computed one after the other.

    Returns
    -------
    Explanation
        The findings, each with code to write instead. Those that also have code to persist the
        result of the step come first. Each group is sorted by bytes: the unknown first, then the
        largest. It prints as text, and as a table in a notebook.

    Raises
    ------
    RequestError
        If no collection is passed, or an argument is not a collection of ``dask.dataframe``.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> df = dd.from_pandas(pd.DataFrame({"user": [1, 2, 1, 2], "spent": [1, 2, 3, 4]}), 2)
    >>> explain(df.groupby("user").spent.sum())
    nothing expensive found: 3 steps, 2 partitions
    >>> explain(df.set_index("user")).kinds
    ('set_index',)
    """
    check(_find_faults(collections))
    for number, collection in enumerate(collections):
        check_index(collection, f"collections[{number}]")
    plan = build_query_plan(collection.expr for collection in collections)
    costly = list(_run_rules(_MOVING_RULES, plan))
    findings = [*costly, *_run_rules(_OTHER_RULES, plan)]
    if len(collections) > 1:
        as_written = replace(plan, simplified_steps=list_unique_steps(plan.written_steps))
        findings = [*find_shared_steps(plan, _run_rules(_MOVING_RULES, as_written)), *findings]
    return Explanation(
        tuple(_rank_findings(findings)),
        len(list_unique_steps(plan.written_steps)),
        plan.count_partitions(),
        tuple(plan.notes),
    )


def _find_faults(collections: tuple[Any, ...]) -> Iterator[Fault]:
    allowed = "dataframes, series, indexes or results of reductions of dask.dataframe"
    if not collections:
        yield Fault("collections", "nothing", allowed)
    for number, item in enumerate(collections):
        if not isinstance(item, dd.DataFrame | dd.Series | dd.Index | dd.Scalar):
            kind = type(item)
            package = kind.__module__.partition(".")[0]
            name = f"{package} {kind.__qualname__}".removeprefix("builtins ")
            yield Fault(f"collections[{number}]", name, allowed, _suggest_fix(kind))


def _suggest_fix(kind: type) -> str:
    if "GroupBy" in kind.__name__:
        return "end the group-by with an aggregation, such as .sum()"
    if kind.__module__.startswith("pandas"):
        return "pandas objects are computed already"
    return ""


def _run_rules(
    rules: Iterable[Callable[[QueryPlan], Iterator[StepFinding]]], plan: QueryPlan
) -> Iterator[StepFinding]:
    for rule in rules:
        try:
            yield from rule(plan)
        except Exception as error:  # noqa: BLE001 - steps of other packages may raise anything
            plan.add_note(f"rule {rule.__name__} skipped", error)


def _rank_findings(findings: list[StepFinding]) -> Iterator[Finding]:
    """Remove duplicate findings; sort those with code to persist first, then by bytes moved.

    An unknown number of bytes comes first, since that step may be the most expensive.
    """
    shared = {item.finding.step for item in findings if item.finding.kind == "shared_step"}
    unique: dict[Any, StepFinding] = {}
    for item in findings:
        finding = item.finding
        # A shared step may occur once per collection, with the columns that this needs and so with
        # another size; these are one finding.
        size = None if finding.step in shared else finding.size
        unique.setdefault((finding.kind, finding.step, size), item)
    order = {id(item): number for number, item in enumerate(findings)}
    ranked = sorted(
        unique.values(),
        key=lambda item: (
            not item.finding.persist,
            -(item.finding.moved if item.finding.moved is not None else float("inf")),
            order[id(item)],
        ),
    )
    return (item.finding for item in ranked)
