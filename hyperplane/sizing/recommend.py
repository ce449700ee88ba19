"""From bytes of data to a pool and a number of nodes: the arithmetic and its reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hyperplane.errors import Fault, RequestError
from hyperplane.sizing.fit import propose_worker, smallest_pool
from hyperplane.sizing.rules import SizingRules, Weight
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec
from hyperplane.units import bytes_to_gb, format_bytes, format_number, gb_to_bytes, plural

Basis = Literal["allocatable", "nominal"]
Tasks = Literal["light", "heavy"]


@dataclass(frozen=True)
class PoolOption:
    """A number of nodes of one pool, and what they give.

    Parameters
    ----------
    pool : PoolSpec
        The kind of node.
    nodes : int
        How many of them.
    worker : WorkerSpec
        Layout of worker processes on each.
    """

    pool: PoolSpec
    nodes: int
    worker: WorkerSpec

    @property
    def total_ram(self) -> int:
        """Bytes that all worker processes have together."""
        return self.nodes * self.worker.total_ram

    @property
    def total_threads(self) -> int:
        """Threads that all worker processes have together."""
        return self.nodes * self.worker.total_threads

    @property
    def cost_per_hour(self) -> float | None:
        """Price of the nodes for an hour, if the pool carries one."""
        price = self.pool.price_per_hour
        return None if price is None else self.nodes * price

    def to_dict(self) -> dict[str, Any]:
        """The option as JSON-able values."""
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
    """What the calculator is asked.

    Parameters
    ----------
    data : int
        Bytes of uncompressed data.
    operation : str
        As the caller named it.
    tasks : {"light", "heavy"}
        Whether the job is made of few or of many tasks.
    basis : {"allocatable", "nominal"}
        Whether to divide by what a node gives or by what its name says.
    pool : PoolSpec, optional
        The pool to use, instead of the one that the rules choose.
    moves_data : bool
        Whether rows move between workers.
    pieces : int, optional
        Into how many jobs the data is cut, instead of what the rules choose.
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
    """A number of nodes that leaves the room which the rules of thumb want.

    Parameters
    ----------
    nodes : int
        At least as many as are needed.
    reason : str
        What fewer nodes would miss; empty when those that are needed miss nothing.
    """

    nodes: int
    reason: str


@dataclass(frozen=True)
class SizingAnswer:
    """What the calculator found for one piece of the data.

    Parameters
    ----------
    weight : {"light", "medium", "heavy"}
        Weight of the operation.
    multiplier : float
        Memory needed as a multiple of the data.
    pieces : int
        Jobs that the data is cut into.
    memory : int
        Bytes that one piece needs.
    option : Option
        The nodes for one piece.
    alternatives : tuple of Option
        Other pools for the same piece.
    reasons, warnings : tuple of str
        Why each choice was made, and what is unusual.
    comfortable : Comfort
        The nodes with which the published rules of thumb are met.
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
    """Apply the rules to a question.

    Raises
    ------
    RequestError
        When the operation is unknown or a pool in the rules does not exist.
    """
    weight = rules.weight(question.operation)
    multiplier = getattr(rules.multipliers, weight)
    pieces, why_pieces = _choose_pieces(question, weight, rules)
    data = math.ceil(question.data / pieces)
    memory = math.ceil(data * multiplier)
    family, why_family = _choose_family(question, rules, pools)
    options = [_option(pool, memory, question.basis) for pool in family]
    best = min(options, key=lambda option: (option.total_ram, option.nodes))
    why_nodes = _explain_nodes(best, memory, question.basis)
    small = _smaller_pool(question, best, memory, pools)
    if small is not None:
        best, why_family = small, f"{small.pool.name}: one node of it is enough, none smaller is"
        why_nodes = _explain_nodes(best, memory, question.basis)
    others = tuple(
        _option(pool, memory, question.basis) for pool in pools.values() if pool != best.pool
    )
    kind = "" if question.operation.lower() == weight else f"{question.operation} is {weight}: "
    reasons = [
        f"memory: {kind}{format_bytes(data)} x {format_number(multiplier)} = "
        f"{format_bytes(memory)}",
        f"pool: {why_family}",
        f"nodes: {why_nodes}",
        f"worker: {best.worker}, {best.worker.total_threads} of "
        f"{format_number(best.pool.allocatable_cores)} cores, "
        f"{format_bytes(best.worker.total_ram)} of {format_bytes(best.pool.allocatable_ram)}",
        *why_pieces,
    ]
    return SizingAnswer(
        weight=weight,
        multiplier=multiplier,
        pieces=pieces,
        memory=memory,
        option=best,
        alternatives=others,
        reasons=tuple(reasons),
        warnings=tuple(_warnings(data, memory, best, pieces)),
        comfortable=_comfortable_size(question, rules, data, memory, best),
    )


def _choose_pieces(
    question: SizingQuestion, weight: Weight, rules: SizingRules
) -> tuple[int, list[str]]:
    if question.pieces is not None:
        return question.pieces, [f"pieces: {question.pieces}, as asked"]
    split = rules.split
    if weight not in split.weights or question.data < gb_to_bytes(split.from_gb):
        return 1, []
    count = math.ceil(question.data / gb_to_bytes(split.piece_gb))
    reason = (
        f"pieces: from {format_bytes(gb_to_bytes(split.from_gb))} on, a job that brings rows "
        f"together is cut into pieces of {format_bytes(gb_to_bytes(split.piece_gb))}"
    )
    return count, [reason]


def _choose_family(
    question: SizingQuestion, rules: SizingRules, pools: Mapping[str, PoolSpec]
) -> tuple[list[PoolSpec], str]:
    if question.pool is not None:
        return [question.pool], f"{question.pool.name}, as asked"
    families = rules.families
    if question.tasks == "heavy":
        names, why = families.many_tasks, "many tasks want cores"
    elif question.moves_data:
        names, why = families.few_tasks, "few tasks that move data want memory on each node"
    else:
        names, why = families.parallel, "work that moves no data wants cores"
    missing = [name for name in names if name not in pools]
    if missing:
        allowed = "a pool that exists: " + ", ".join(pools)
        raise RequestError([Fault("hyperplane.sizing.families", name, allowed) for name in missing])
    return [pools[name] for name in names], f"{' or '.join(names)}: {why}"


def _option(pool: PoolSpec, memory: int, basis: Basis) -> PoolOption:
    worker = propose_worker(pool)
    per_node = gb_to_bytes(pool.ram_gb) if basis == "nominal" else worker.total_ram
    return PoolOption(pool, max(1, math.ceil(memory / per_node)), worker)


def _smaller_pool(
    question: SizingQuestion, best: PoolOption, memory: int, pools: Mapping[str, PoolSpec]
) -> PoolOption | None:
    """A smaller pool that does on one node what the family's pool would do on one node.

    The published rule knows two pools only; it speaks of jobs of many nodes. It is left alone
    when it is asked for by ``basis="nominal"``, and for many tasks, which want the cores.
    """
    chosen = question.pool is not None or question.tasks == "heavy" or question.basis == "nominal"
    if chosen or best.nodes > 1:
        return None
    enough = [pool for pool in pools.values() if propose_worker(pool).total_ram >= memory]
    pool = smallest_pool(enough, 0, 0)
    return _option(pool, memory, question.basis) if pool != best.pool else None


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


def _warnings(data: int, memory: int, best: PoolOption, pieces: int) -> list[str]:
    found = []
    if pieces > 1:
        found.append(
            f"split: run {pieces} jobs of {format_bytes(data)} (chunk_id 0 to {pieces - 1}), each "
            f"on {plural(best.nodes, 'node')} of {best.pool.name}; all at once they take "
            f"{plural(pieces * best.nodes, 'node')}"
        )
    if best.total_ram < memory:
        found.append(
            f"nominal basis: the nodes really give {format_bytes(best.total_ram)} of the "
            f"{format_bytes(memory)} needed"
        )
    return found


def _comfortable_size(
    question: SizingQuestion, rules: SizingRules, data: int, memory: int, best: PoolOption
) -> ComfortableSize:
    checks, nodes, reasons = rules.checks, best.nodes, []
    each = best.worker.total_ram
    ratio = best.total_ram / data if data else math.inf
    if rules.is_aggregation(question.operation) and ratio < checks.aggregation_ratio:
        nodes = math.ceil(data * checks.aggregation_ratio / each)
        reasons.append(
            f"an aggregation wants {checks.aggregation_ratio:g} times its data in memory, "
            f"{plural(best.nodes, 'node')} give {ratio:.1f} times"
        )
    if (use := memory / best.total_ram) > checks.full_fraction:
        nodes = max(nodes, math.ceil(memory / (checks.full_fraction * each)))
        reasons.append(
            f"workers filled above {checks.full_fraction:.0%} may spill or fail, "
            f"{plural(best.nodes, 'node')} would be {use:.0%} full"
        )
    return ComfortableSize(nodes, "; ".join(reasons))
