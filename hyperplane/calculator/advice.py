"""Result of the sizing calculator, which can be printed, plotted, converted and started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hyperplane.calculator.cluster_advice import ClusterAdvice
from hyperplane.calculator.measure import DataSize
from hyperplane.core.html_output import make_bar, make_chip, make_output, make_rows, make_table
from hyperplane.core.units import bytes_to_gb, format_bytes, format_number, plural
from hyperplane.sizing.recommend import PoolOption, SizingAnswer, SizingQuestion


@dataclass(frozen=True, repr=False)
class SizingAdvice(ClusterAdvice):
    """Size of a cluster by the published rules, with reasons.

    Nodes and memory are those of one cluster. If the data is split into pieces (``pieces > 1``),
    that is the cluster for one piece, and each piece is a separate job.

    Parameters
    ----------
    question : SizingQuestion
        Input of the calculator.
    found : SizingAnswer
        Result of the sizing rules.
    measured : DataSize
        Size of the data and how it was determined.
    """

    question: SizingQuestion
    found: SizingAnswer
    measured: DataSize

    @property
    def data_gb(self) -> float:
        """Size of the uncompressed data of all pieces, in GB (10**9 bytes)."""
        return bytes_to_gb(self.measured.size)

    @property
    def memory_gb(self) -> float:
        """Memory that one cluster needs, in GB."""
        return bytes_to_gb(self.found.memory)

    @property
    def option(self) -> PoolOption:
        """The recommended pool, number of nodes and layout."""
        return self.found.option

    @property
    def pieces(self) -> int:
        """Number of jobs into which the data should be split; 1 means no split."""
        return self.found.pieces

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons for the choices, one line each."""
        return self.found.reasons

    @property
    def comfortable(self) -> int:
        """Number of nodes with the spare memory that the published rules of thumb advise."""
        return self.found.comfortable.nodes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings, one line each, which begin with the name of the rule."""
        return self.found.warnings

    @property
    def alternatives(self) -> tuple[PoolOption, ...]:
        """The same cluster with other pools: nodes and totals."""
        return self.found.alternatives

    def as_arguments(self) -> dict[str, Any]:
        """Return the advice as arguments of ``initialize_cluster``."""
        # A PoolSpec of the caller may be missing in the configuration, so pass the object.
        pool = self.question.pool or self.pool.name
        return {"num_workers": self.nodes, "pool": pool, **self.worker.to_dict()}

    def rows(self) -> list[tuple[str, str]]:
        """Return labels and texts: the cluster, reasons, warnings and other pools."""
        others = "; ".join(
            f"{plural(other.nodes, 'node')} of {other.pool.name} ({format_bytes(other.total_ram)})"
            for other in self.alternatives
        )
        return [*self.summary_rows(), ("instead", others)]

    def summary_rows(self) -> list[tuple[str, str]]:
        """Return the rows without the other pools."""
        option, worker, cost = self.option, self.worker, self.cost_per_hour
        processes = plural(self.nodes * worker.nprocs, "worker process")
        needed, provided = format_bytes(self.found.memory), format_bytes(option.total_ram)
        cores = format_number(worker.cores_per_worker)
        recommended = [
            ("data", f"{format_bytes(self.measured.size)} ({self.measured.how})"),
            ("memory", f"{needed} needed, {provided} given"),
            ("cluster", f"{plural(self.nodes, 'node')} of pool {self.pool}"),
            ("worker", f"{worker} on each node, cores_per_worker {cores}"),
            ("total", f"{processes}, {plural(option.total_threads, 'thread')}"),
        ]
        if self.pieces > 1:
            recommended.append(("pieces", f"{self.pieces}, each on a cluster like this"))
        if cost is not None:
            recommended.append(("cost", f"{format_number(cost)} per hour"))
        spare = self.found.comfortable
        comfortable = [("comfortable", f"{plural(spare.nodes, 'node')}: {spare.reason}")]
        return [
            *recommended,
            *(comfortable if spare.reason else []),
            *(("why", reason) for reason in self.reasons),
            *(("warning", warning) for warning in self.warnings),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as values that JSON can represent."""
        return {
            "data_gb": self.data_gb,
            "measured": self.measured.how,
            "operation": self.question.operation,
            "weight": self.found.weight,
            "multiplier": self.found.multiplier,
            "tasks": self.question.tasks,
            "basis": self.question.basis,
            "memory_gb": self.memory_gb,
            "given_gb": self.given_gb,
            "pieces": self.pieces,
            **self.found.option.to_dict(),
            "comfortable_nodes": self.comfortable,
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "alternatives": [other.to_dict() for other in self.alternatives],
        }

    def _repr_html_(self) -> str:
        options = (self.option, *self.alternatives)
        titles = [
            "pool",
            "nodes",
            "on each node",
            f"memory; {format_bytes(self.found.memory)} needed",
        ]
        titles += ["per hour"] if any(each.cost_per_hour is not None for each in options) else []
        cells = (self._list_cells(each, options)[: len(titles)] for each in options)
        return make_output(make_rows(self.summary_rows()), make_table(titles, cells))

    def _list_cells(self, option: PoolOption, options: Sequence[PoolOption]) -> list[str]:
        """Return an option as cells: the memory is a bar with a line at the memory needed."""
        widest = max(self.found.memory, *(each.total_ram for each in options))
        is_chosen = option is self.option
        cost, name = option.cost_per_hour, option.pool.name
        return [
            make_chip(f"{name} (recommended)", "hp-good") if is_chosen else name,
            str(option.nodes),
            str(option.worker),
            make_bar(
                option.total_ram / widest,
                format_bytes(option.total_ram),
                "hp-good" if is_chosen else "hp-idle",
                mark=self.found.memory / widest,
            ),
            "" if cost is None else format_number(cost),
        ]
