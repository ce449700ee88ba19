"""Rules for repeated work: shared steps, repeated shuffles and repeated reads."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from hyperplane.collections.frames.explain.groups import is_shuffled_groupby
from hyperplane.collections.frames.explain.joins import list_shuffled_sides
from hyperplane.collections.frames.explain.query_plan import (
    QueryPlan,
    StepFinding,
    format_columns,
    format_source,
    list_unique_steps,
    walk_steps,
)
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.core.dask_internals.frames import (
    IO,
    FromDelayed,
    FromMap,
    FromMapProjectable,
    GroupByApply,
    Merge,
    MergeAsof,
    ReadParquet,
)
from hyperplane.core.units import plural

#: Minimum bytes of a Parquet source for which reading it repeatedly is reported.
LARGE_SOURCE = 1_000_000_000

_TEXT = re.compile(r"csv|json|read_table|read_fwf", re.IGNORECASE)


def find_shared_steps(plan: QueryPlan, costly: Iterable[StepFinding]) -> Iterator[StepFinding]:
    """Yield expensive steps that several collections contain: each ``compute()`` repeats them.

    ``costly`` has the expensive steps of all collections as written.
    """
    uses = Counter(node._name for nodes in plan.written_steps for node in nodes)
    shared = [item for item in costly if uses[item.node._name] > 1]
    dependencies = {
        step._name for item in shared for step in walk_steps([item.node]) if step is not item.node
    }
    for item in shared:
        # Dependencies of a shared step are shared, too.
        if item.node._name not in dependencies:
            yield StepFinding(_make_shared_finding(item.finding, uses[item.node._name]), item.node)


def _make_shared_finding(finding: Finding, count: int) -> Finding:
    return Finding(
        "shared_step",
        finding.step,
        finding.size,
        f"{count} of the collections contain it: each compute() repeats it",
        "dask.compute(first, second)  # one call for all collections does it once",
        finding.persist,
        finding.moved,
    )


def find_repeated_shuffles(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield frames that several joins or group-bys shuffle by the same key."""
    moves_by_key: dict[Any, dict[str, tuple[Any, Any]]] = defaultdict(dict)
    for node in list_unique_steps(plan.written_steps):
        for frame, key in _list_shuffles(node):
            if key is not None:
                moves_by_key[frame._name, format_columns(key)][node._name] = frame, node
    for (_, key), moves in moves_by_key.items():
        if len(moves) > 1:
            frame, node = next(iter(moves.values()))
            only_joins = all(isinstance(step, Merge) for _, step in moves.values())
            yield StepFinding(
                _make_repeated_shuffle_finding(plan, key, frame, len(moves), only_joins), node
            )


def _list_shuffles(node: Any) -> list[tuple[Any, Any]]:
    """Return the frames that a step shuffles, each with its key columns."""
    if isinstance(node, Merge) and not isinstance(node, MergeAsof):
        return [
            (getattr(node, side), node.operand(f"{side}_on")) for side in list_shuffled_sides(node)
        ]
    if isinstance(node, GroupByApply) and is_shuffled_groupby(node):
        return [(node.frame, node._by_columns or None)]
    return []


def _make_repeated_shuffle_finding(
    plan: QueryPlan, key: str, frame: Any, count: int, only_joins: bool
) -> Finding:
    call = f"set_index({key})" if only_joins and not key.startswith("[") else f"shuffle({key})"
    use = "join on the index" if call.startswith("set_index") else "use map_partitions"
    return Finding(
        "moved_again",
        f"{count} joins or group-bys of the same frame on {key}",
        plan.describe(frame),
        f"each of them moves every row of it by {key}",
        f"df = df.{call}.persist()  # once; {use} from here on",
        f"df = df.{call}.persist()",
        None if plan.total_bytes(frame) is None else count * (plan.total_bytes(frame) or 0),
    )


def find_repeated_reads(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield files that are read more than once: text files, or large Parquet files."""
    reads = defaultdict(list)
    for node in plan.simplified_steps:
        if isinstance(node, IO):
            reads[_get_source_identity(node)].append(node)
    uses = Counter(
        identity
        for nodes in plan.written_steps
        for identity in {_get_source_identity(node) for node in nodes if isinstance(node, IO)}
    )
    for identity, nodes in reads.items():
        count = max(len(nodes), uses[identity])
        if count > 1:
            finding = _make_repeated_read_finding(plan, nodes, count)
            if finding:
                yield StepFinding(finding, nodes[0])


def _get_source_identity(node: Any) -> Any:
    """Return an identifier of the files of a source, independent of columns and rows."""
    if isinstance(node, ReadParquet):
        return "parquet", node.checksum, repr(node.path)
    if isinstance(node, FromMapProjectable):
        return node.substitute_parameters({"columns": None, "_series": False})._name
    return node._name


def _make_repeated_read_finding(plan: QueryPlan, nodes: list[Any], count: int) -> Finding | None:
    first, name = nodes[0], format_source(nodes[0])
    why = f"it is read {count} times: by several collections, or for different columns and rows"
    if isinstance(first, FromMap | FromDelayed) and _TEXT.search(name):
        return Finding(
            "text_read_again",
            name,
            plan.describe(first),
            why + "; text is slow to read",
            "df.to_parquet(folder)\ndf = dd.read_parquet(folder)  # once; use df from here on",
            "df = df.persist()  # if it fits in memory",
        )
    if isinstance(first, ReadParquet):
        sizes = [plan.estimate_size(node) for node in nodes]
        if all(size and size.total >= LARGE_SOURCE for size in sizes):
            columns = sorted({str(column) for node in nodes for column in node.columns})
            return Finding(
                "read_again",
                name,
                plan.describe(*nodes),
                why,
                f"df = dd.read_parquet(path, columns={columns!r})"
                f"  # {plural(len(columns), 'column')}: all that are used",
                "df = df.persist()  # if these fit in memory",
                plan.total_bytes(*nodes),
            )
    return None
