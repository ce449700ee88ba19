"""Rows of a printed sizing advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperplane.core.units import format_bytes, format_number, plural

if TYPE_CHECKING:
    from hyperplane.calculator.advice import SizingAdvice


def _format_comfortable(advice: SizingAdvice) -> str:
    found = advice.found.comfortable
    return f"{plural(found.nodes, 'node')}: {found.reason}"


def rows(advice: SizingAdvice) -> list[tuple[str, str]]:
    """Return labels and texts: the cluster, reasons, warnings and other pools."""
    option, worker, cost = advice.found.option, advice.worker, advice.cost_per_hour
    processes = plural(advice.nodes * worker.nprocs, "worker process")
    needed, given = format_bytes(advice.found.memory), format_bytes(option.total_ram)
    cores = format_number(worker.cores_per_worker)
    recommended = [
        ("data", f"{format_bytes(advice.measured.size)} ({advice.measured.how})"),
        ("memory", f"{needed} needed, {given} given"),
        ("cluster", f"{plural(advice.nodes, 'node')} of pool {advice.pool}"),
        ("worker", f"{worker} on each node, cores_per_worker {cores}"),
        ("total", f"{processes}, {plural(option.total_threads, 'thread')}"),
    ]
    if advice.pieces > 1:
        recommended.append(("pieces", f"{advice.pieces}, each on a cluster like this"))
    if cost is not None:
        recommended.append(("cost", f"{format_number(cost)} per hour"))
    others = "; ".join(
        f"{plural(other.nodes, 'node')} of {other.pool.name} ({format_bytes(other.total_ram)})"
        for other in advice.alternatives
    )
    return [
        *recommended,
        *(
            [("comfortable", _format_comfortable(advice))]
            if advice.found.comfortable.reason
            else []
        ),
        *(("why", reason) for reason in advice.reasons),
        *(("warning", warning) for warning in advice.warnings),
        ("instead", others),
    ]
