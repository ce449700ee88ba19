"""Advice from a forecast: a layout on which the job fits, beside the others that were simulated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hyperplane.calculator.cluster_advice import ClusterAdvice
from hyperplane.core.html_output import Markup, make_output, make_rows, make_table
from hyperplane.core.units import bytes_to_gb, format_number, plural, round_bytes
from hyperplane.forecasts.evaluate import SampledJob
from hyperplane.forecasts.layout_search import MeasuredOption, find_front
from hyperplane.forecasts.pareto_picture import draw_options


@dataclass(frozen=True, repr=False)
class MeasuredAdvice(ClusterAdvice):
    """Size of a cluster for a job of which a sample was run, with what it takes on others.

    Parameters
    ----------
    job : SampledJob
        The job.
    chosen : MeasuredOption
        The recommended pool, number of nodes and layout.
    options : tuple of MeasuredOption
        All options that were found, the recommended one included.
    left_out : tuple of (str, str)
        Pools and layouts that are no option, and why.
    unit : str
        What costs are compared in: a currency if all pools have prices, otherwise core-hours.
    usable : float
        Fraction of the memory of a process that the upper end of a peak does not exceed.
    considered, simulated : int
        Number of layouts whose bounds were computed, and of those that were simulated.
    """

    job: SampledJob
    chosen: MeasuredOption
    options: tuple[MeasuredOption, ...]
    left_out: tuple[tuple[str, str], ...]
    unit: str
    usable: float
    considered: int
    simulated: int

    @property
    def option(self) -> MeasuredOption:
        """The recommended pool, number of nodes and layout."""
        return self.chosen

    @cached_property
    def front(self) -> tuple[MeasuredOption, ...]:
        """Options than which no other is both faster and cheaper, the fastest first."""
        return tuple(find_front(self.options))

    @cached_property
    def alternatives(self) -> tuple[MeasuredOption, ...]:
        """The front, and the cheapest option of each other pool; the cheapest first."""
        pools: dict[str, MeasuredOption] = {}
        for each in sorted(self.options, key=lambda option: option.cost):
            pools.setdefault(each.pool.name, each)
        shown = {id(each): each for each in (*self.front, *pools.values())}
        shown.pop(id(self.chosen), None)
        return tuple(sorted(shown.values(), key=lambda option: (option.cost, option.seconds)))

    @property
    def data_gb(self) -> float:
        """Size of the local files that the job reads, in GB (10**9 bytes)."""
        return bytes_to_gb(self.job.read)

    @property
    def memory_gb(self) -> float:
        """Upper end of the memory of all worker processes, in GB."""
        return bytes_to_gb(self.nodes * self.worker.nprocs * self.chosen.high)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons for the choices, one line each."""
        usable = round(self.usable * self.worker.ram_per_proc)
        choice = (
            f"pool: the cheapest in {self.unit}; of costs that differ by less than a tenth the "
            "fewest nodes, and of these the fastest"
        )
        if self.chosen.is_local:
            choice = (
                f"layout: that of this machine with the fewest {self.unit}; of those that differ "
                "by less than a tenth the fastest. advise(local=False) considers the nodes of pools"
            )
        return (
            f"memory: up to {round_bytes(self.chosen.high)} in a process, of the "
            f"{round_bytes(usable)} ({format_number(self.usable)} of its limit) that are usable",
            choice,
            f"search: {self.simulated} of {plural(self.considered, 'layout')} simulated; the "
            "others need too much memory, or are not better by a tenth",
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the interval wide, one line each."""
        return self.job.notes

    def as_arguments(self) -> dict[str, Any]:
        """Return the advice as arguments of ``initialize_cluster``."""
        return self.chosen.as_arguments()

    def rows(self) -> list[tuple[str, str]]:
        """Return labels and texts: the cluster, reasons, warnings and other options."""
        return [*self.summary_rows(), *self.other_rows(), *self.closing_rows()]

    def other_rows(self) -> list[tuple[str, str]]:
        """Return a row for each other option."""
        return [
            ("instead", describe_option(each) + (" (front)" if each in self.front else ""))
            for each in self.alternatives
        ]

    def summary_rows(self) -> list[tuple[str, str]]:
        """Return the rows of the recommended cluster."""
        option, job = self.chosen, self.job
        data = f", {round_bytes(job.read)} of files" if job.read else ""
        processes = plural(option.nodes * option.worker.nprocs, "worker process")
        price = "" if option.price is None else f", {option.price:.3g} {self.unit}"
        return [
            ("job", f"{plural(job.tasks, 'task')}, {job.model.cpu:.3g} CPU s{data}"),
            ("cluster", f"{_describe_nodes(option)} {option.pool}"),
            ("worker", f"{option.worker} on each node, cores_per_worker "
             f"{format_number(option.worker.cores_per_worker)}"),
            ("memory", f"{round_bytes(option.peak)} in the largest of {processes}; it needs at "
             f"most about {round_bytes(option.high)}"),
            ("time", f"{_format_seconds(option.seconds)} for the tasks"),
            ("cost", f"{option.core_hours:.3g} core-hours{price}"),
        ]  # fmt: skip

    def closing_rows(self) -> list[tuple[str, str]]:
        """Return the reasons, warnings and what was left out."""
        return [
            *(("why", reason) for reason in self.reasons),
            *(("warning", warning) for warning in self.warnings),
            *(("left out", f"{name}: {reason}") for name, reason in self.left_out),
        ]

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the columns of :meth:`table`; a layout is processes x threads x memory."""
        return "pool", "nodes", "layout", "up to", "time", self.unit, ""

    def table(self) -> list[tuple[str, ...]]:
        """Return a row of cells for each option, the recommended one first."""
        rows: list[tuple[str, ...]] = []
        for each in (self.chosen, *self.alternatives):
            mark = "recommended" if each is self.chosen else "front" if each in self.front else ""
            worker = each.worker
            rows.append(
                (
                    "this machine" if each.is_local else each.pool.name,
                    str(each.nodes),
                    f"{worker.nprocs} x {worker.nthreads} x "
                    f"{format_number(worker.ram_gb_per_proc)} GB",
                    round_bytes(each.high),
                    _format_seconds(each.seconds),
                    f"{each.cost:.3g}",
                    mark,
                )
            )
        return rows

    def to_svg(self) -> str:
        """Return a picture of the time and the cost of all options as SVG."""
        return draw_options(self.options, self.chosen, self.front, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as values that JSON can represent."""
        return {
            "rules": "measured",
            "data_gb": self.data_gb,
            "memory_gb": self.memory_gb,
            "given_gb": self.given_gb,
            **self._describe(self.chosen),
            "unit": self.unit,
            "usable": self.usable,
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "alternatives": [self._describe(each) for each in self.alternatives],
            "left_out": [{"name": name, "reason": reason} for name, reason in self.left_out],
            "considered": self.considered,
            "simulated": self.simulated,
        }

    def _describe(self, option: MeasuredOption) -> dict[str, Any]:
        return {**option.to_dict(), "on_front": option in self.front}

    def _repr_html_(self) -> str:
        return make_output(
            make_rows(self.summary_rows()),
            Markup(self.to_svg()),
            make_table(self.titles, self.table()),
            make_rows([*self.other_rows(), *self.closing_rows()]),
        )


def describe_option(option: MeasuredOption) -> str:
    """Return an option in one line."""
    price = "" if option.price is None else f", cost {option.price:.3g}"
    return (
        f"{_describe_nodes(option)} {option.pool.name}, {option.worker}: "
        f"{_format_seconds(option.seconds)}, {option.core_hours:.3g} core-hours{price}, up to "
        f"{round_bytes(option.high)} in a process"
    )


def _describe_nodes(option: MeasuredOption) -> str:
    return "" if option.is_local else f"{plural(option.nodes, 'node')} of pool"


def _format_seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
