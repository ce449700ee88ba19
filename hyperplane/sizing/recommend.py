"""Arithmetic of the sizing calculator: from bytes of data to a pool and a number of nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import bytes_to_gb, format_bytes, format_number, gb_to_bytes, plural
from hyperplane.sizing.fit import propose_worker, smallest_pool
from hyperplane.sizing.rules import SizingRules, Weight
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

Basis = Literal["allocatable", "nominal"]
Tasks = Literal["light", "heavy"]


@dataclass(frozen=True)
class PoolOption:
    """A number of nodes of one pool, with the layout of worker processes on each."""

    pool: PoolSpec
    nodes: int
    worker: WorkerSpec

    @property
    def total_ram(self) -> int:
        """Memory of all worker processes, in bytes."""
        return self.nodes * self.worker.total_ram

    @property
    def total_threads(self) -> int:
        """Number of threads of all worker processes."""
        return self.nodes * self.worker.total_threads

    @property
    def cost_per_hour(self) -> float | None:
        """Price of the nodes for an hour; None if the pool has no price."""
        price = self.pool.price_per_hour
        return None if price is None else self.nodes * price

    def to_dict(self) -> dict[str, Any]:
        """Return the option as values that JSON can represent."""
        return {
            "pool": self.pool.name,
            "nodes": self.nodes,
            "worker": self.worker.to_dict(),
            "total_ram_gb": bytes_to_gb(self.total_ram),
            "total_threads": self.total_threads,
            "cost_per_hour": self.cost_per_hour,
        }


@dataclass(frozen=True)
class SizingQuestion:
    """Input of the calculator; ``data`` is in bytes, uncompressed.

    ``tasks`` is "heavy" for a job of many tasks. ``basis`` selects allocatable or nominal memory
    of a node. ``moves_data`` is true if rows move between workers. ``pool`` and ``pieces``, the
    number of jobs, override the choice of the rules.
    """

    data: int
    operation: str
    tasks: Tasks
    basis: Basis
    pool: PoolSpec | None
    moves_data: bool
    pieces: int | None


@dataclass(frozen=True)
class ComfortableSize:
    """Number of nodes with the spare memory of the rules of thumb, and the reason.

    The reason is empty if the necessary nodes already have that memory.
    """

    nodes: int
    reason: str


@dataclass(frozen=True)
class SizingAnswer:
    """Result of the calculator for one piece of the data.

    ``multiplier`` is the memory needed as a multiple of the data, ``memory`` the bytes that one
    piece needs, ``option`` the nodes for one piece, and ``alternatives`` other pools for it.
    """

    weight: Weight
    multiplier: float
    pieces: int
    memory: int
    option: PoolOption
    alternatives: tuple[PoolOption, ...]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    comfortable: ComfortableSize


def apply_rules(
    question: SizingQuestion, rules: SizingRules, pools: Mapping[str, PoolSpec]
) -> SizingAnswer:
    """Return memory, pool and nodes; raise RequestError for an unknown operation or pool."""
    weight = rules.weight(question.operation)
    multiplier = getattr(rules.multipliers, weight)
    pieces, pieces_reasons = _choose_pieces(question, weight, rules)
    data = math.ceil(question.data / pieces)
    memory = math.ceil(data * multiplier)
    family, family_reason = _choose_family(question, rules, pools)
    options = [_build_option(pool, memory, question.basis) for pool in family]
    best = min(options, key=lambda option: (option.total_ram, option.nodes))
    nodes_reason = _explain_nodes(best, memory, question.basis)
    small = _smaller_pool(question, best, memory, pools)
    if small is not None:
        best, family_reason = (
            small,
            f"{small.pool.name}: the smallest pool whose one node is enough",
        )
        nodes_reason = _explain_nodes(best, memory, question.basis)
    others = tuple(
        _build_option(pool, memory, question.basis) for pool in pools.values() if pool != best.pool
    )
    kind = "" if question.operation.lower() == weight else f"{question.operation} is {weight}: "
    reasons = [
        f"memory: {kind}{format_bytes(data)} x {format_number(multiplier)} = "
        f"{format_bytes(memory)}",
        f"pool: {family_reason}",
        f"nodes: {nodes_reason}",
        f"worker: {best.worker}, {best.worker.total_threads} of "
        f"{format_number(best.pool.allocatable_cores)} cores, "
        f"{format_bytes(best.worker.total_ram)} of {format_bytes(best.pool.allocatable_ram)}",
        *pieces_reasons,
    ]
    return SizingAnswer(
        weight=weight,
        multiplier=multiplier,
        pieces=pieces,
        memory=memory,
        option=best,
        alternatives=others,
        reasons=tuple(reasons),
        warnings=tuple(_find_warnings(data, memory, best, pieces)),
        comfortable=_find_comfortable_size(question, rules, data, memory, best),
    )


def _choose_pieces(
    question: SizingQuestion, weight: Weight, rules: SizingRules
) -> tuple[int, list[str]]:
    if question.pieces is not None:
        return question.pieces, [f"pieces: {question.pieces}, as requested"]
    split = rules.split
    if weight not in split.weights or question.data < gb_to_bytes(split.from_gb):
        return 1, []
    count = math.ceil(question.data / gb_to_bytes(split.piece_gb))
    reason = (
        f"pieces: from {format_bytes(gb_to_bytes(split.from_gb))} on, a job that combines rows "
        f"is split into pieces of {format_bytes(gb_to_bytes(split.piece_gb))}"
    )
    return count, [reason]


def _choose_family(
    question: SizingQuestion, rules: SizingRules, pools: Mapping[str, PoolSpec]
) -> tuple[list[PoolSpec], str]:
    if question.pool is not None:
        return [question.pool], f"{question.pool.name}, as requested"
    families = rules.families
    if question.tasks == "heavy":
        names, reason = families.many_tasks, "many tasks need cores"
    elif question.moves_data:
        names, reason = families.few_tasks, "few tasks that move data need memory on each node"
    else:
        names, reason = families.parallel, "work that moves no data needs cores"
    missing = [name for name in names if name not in pools]
    if missing:
        allowed = "the name of a pool: " + ", ".join(pools)
        raise RequestError([Fault("hyperplane.sizing.families", name, allowed) for name in missing])
    return [pools[name] for name in names], f"{' or '.join(names)}: {reason}"


def _build_option(pool: PoolSpec, memory: int, basis: Basis) -> PoolOption:
    worker = propose_worker(pool)
    per_node = gb_to_bytes(pool.ram_gb) if basis == "nominal" else worker.total_ram
    return PoolOption(pool, max(1, math.ceil(memory / per_node)), worker)


def _smaller_pool(
    question: SizingQuestion, best: PoolOption, memory: int, pools: Mapping[str, PoolSpec]
) -> PoolOption | None:
    """Return the smallest pool of which one node is enough, if one node of ``best`` is enough.

    The published rules choose between large pools, for jobs of many nodes. They are not changed
    with ``basis="nominal"``, which requests them, nor for many tasks, which need cores.
    """
    chosen = question.pool is not None or question.tasks == "heavy" or question.basis == "nominal"
    if chosen or best.nodes > 1:
        return None
    enough = [pool for pool in pools.values() if propose_worker(pool).total_ram >= memory]
    pool = smallest_pool(enough, 0, 0)
    return _build_option(pool, memory, question.basis) if pool != best.pool else None


def _explain_nodes(option: PoolOption, memory: int, basis: Basis) -> str:
    if basis == "nominal":
        per_node = gb_to_bytes(option.pool.ram_gb)
        kind = "nominal"
    else:
        per_node = option.worker.total_ram
        kind = "allocatable"
    return (
        f"{format_bytes(memory)} / {format_bytes(per_node)} ({kind}) = "
        f"{format_number(memory / per_node)} -> {plural(option.nodes, 'node')}"
    )


def _find_warnings(data: int, memory: int, best: PoolOption, pieces: int) -> list[str]:
    warnings = []
    if pieces > 1:
        warnings.append(
            f"split: run {pieces} jobs of {format_bytes(data)} (chunk_id 0 to {pieces - 1}), each "
            f"on {plural(best.nodes, 'node')} of {best.pool.name}; all at once they take "
            f"{plural(pieces * best.nodes, 'node')}"
        )
    if best.total_ram < memory:
        warnings.append(
            f"nominal basis: the nodes have {format_bytes(best.total_ram)} of the "
            f"{format_bytes(memory)} needed"
        )
    return warnings


def _find_comfortable_size(
    question: SizingQuestion, rules: SizingRules, data: int, memory: int, best: PoolOption
) -> ComfortableSize:
    checks, nodes, reasons = rules.checks, best.nodes, []
    node_ram = best.worker.total_ram
    ratio = best.total_ram / data if data else math.inf
    if rules.is_aggregation(question.operation) and ratio < checks.aggregation_ratio:
        nodes = math.ceil(data * checks.aggregation_ratio / node_ram)
        reasons.append(
            f"an aggregation needs {checks.aggregation_ratio:g} times its data in memory, "
            f"{plural(best.nodes, 'node')} {'has' if best.nodes == 1 else 'have'} {ratio:.1f} times"
        )
    if (use := memory / best.total_ram) > checks.full_fraction:
        nodes = max(nodes, math.ceil(memory / (checks.full_fraction * node_ram)))
        reasons.append(
            f"workers above {checks.full_fraction:.0%} of their memory may spill or fail, "
            f"{plural(best.nodes, 'node')} would be {use:.0%} full"
        )
    return ComfortableSize(nodes, "; ".join(reasons))
