"""Two runs beside each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from hyperplane.core.html_output import make_output, make_table
from hyperplane.core.public_calls import check_call
from hyperplane.core.text_tables import as_text
from hyperplane.core.units import format_bytes, format_number
from hyperplane.history.code_digest import SHOWN
from hyperplane.history.run_record import RunRecord
from hyperplane.history.run_texts import describe_cost
from hyperplane.history.store import read_run

#: Operations that a comparison shows, those with the most time.
_OPERATIONS = 12


@dataclass(frozen=True)
class ComparedValue:
    """One figure of two runs.

    Parameters
    ----------
    name, unit : str
        Name of the figure, and ``"bytes"``, ``"s"`` or an empty text.
    first, second : float or str
        The figure in both runs.
    """

    name: str
    first: float | str
    second: float | str
    unit: str = ""

    @property
    def ratio(self) -> float | None:
        """The second number divided by the first; None if there is none."""
        if isinstance(self.first, str) or isinstance(self.second, str) or not self.first:
            return None
        return self.second / self.first

    def texts(self) -> tuple[str, str, str]:
        """Return both figures and their ratio as texts."""
        ratio = "" if self.ratio is None else f"x {self.ratio:.2f}"
        if isinstance(self.first, str):
            ratio = "" if self.first == self.second else "differs"
        return self._format(self.first), self._format(self.second), ratio

    def _format(self, value: float | str) -> str:
        if isinstance(value, str):
            return value
        if self.unit == "bytes":
            return format_bytes(round(value))
        if self.unit == "s":
            value = round(value, 4)  # not 2.62e-06 s
        number = f"{value:.3g}" if 0 < abs(value) < 1000 else format_number(round(value))
        return f"{number} {self.unit}".strip()


@dataclass(frozen=True, repr=False)
class RunComparison:
    """Two runs and the figures in which they can differ.

    Parameters
    ----------
    first, second : RunRecord
        The runs.
    values : tuple of ComparedValue
        Their figures.
    """

    first: RunRecord
    second: RunRecord
    values: tuple[ComparedValue, ...]

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the printed comparison: labels and texts."""
        texts = [(value.name, *value.texts()) for value in self.values]
        widths = [max(len(row[column]) for row in texts) for column in (1, 2)]
        return [
            (name, f"{first:<{widths[0]}}  {second:<{widths[1]}}  {ratio}".rstrip())
            for name, first, second, ratio in texts
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as values that JSON can represent."""
        values = [{**asdict(value), "ratio": value.ratio} for value in self.values]
        return {"first": self.first.name, "second": self.second.name, "values": values}

    def to_json(self) -> str:
        """Return the comparison as a JSON document."""
        return json.dumps(self.to_dict(), indent=1)

    def __str__(self) -> str:
        return as_text(self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = ((value.name, *value.texts()) for value in self.values)
        return make_output(make_table(("", "first", "second", "second / first"), cells))


@check_call
def compare_runs(first: str, second: str = "latest") -> RunComparison:
    """Compare two runs: parameters, code, layout, time, memory, data, cost, and operations.

    Parameters
    ----------
    first, second : str
        Names of runs, as for :func:`read_run`.

    Returns
    -------
    RunComparison
        Prints as a table.

    Raises
    ------
    RequestError
        If there is no such record.
    ReadError
        If a file cannot be read, or is no record.

    Examples
    --------
    >>> compare_runs("20261127-160314", "latest")  # doctest: +SKIP
    run         20261127-160314-flights  20261128-160411-flights  differs
    peak        412 MB                   655 MB                   x 1.59
    """
    return compare_records(read_run(first), read_run(second))


def compare_records(first: RunRecord, second: RunRecord) -> RunComparison:
    """Compare two records."""
    values = [*_compare_figures(first, second), *_compare_operations(first, second)]
    return RunComparison(first, second, tuple(values))


#: Texts and numbers that are compared: name, unit and function of the record.
_FIGURES: tuple[tuple[str, str, Callable[[RunRecord], float | str]], ...] = (
    ("ended", "", lambda run: run.exit_reason),
    ("engine", "", lambda run: run.plan.engine),
    ("pool", "", lambda run: run.plan.pool or "none"),
    ("nodes", "", lambda run: run.plan.nodes or "unknown"),
    ("processes per node", "", lambda run: run.plan.nprocs if run.plan.nodes else "unknown"),
    ("threads per process", "", lambda run: run.plan.nthreads),
    ("memory per process", "bytes", lambda run: run.plan.ram_per_proc),
    ("time", "s", lambda run: run.seconds),
    ("CPU", "s", lambda run: run.cpu_seconds),
    ("peak", "bytes", lambda run: max((worker.peak for worker in run.workers), default=0)),
    ("read", "bytes", lambda run: run.read),
    ("written", "bytes", lambda run: run.written),
    ("on disk", "bytes", lambda run: run.spilled),
    ("paused", "s", lambda run: run.paused_seconds),
    ("restarts", "", lambda run: run.restarts),
    ("input", "bytes", lambda run: sum(each.input for each in run.computations)),
)


#: Figures that only clusters have.
_OF_CLUSTERS = frozenset({
    "nodes", "processes per node", "threads per process", "memory per process", "on disk", "paused",
    "restarts", "input",
})  # fmt: skip


def _compare_figures(first: RunRecord, second: RunRecord) -> Iterator[ComparedValue]:
    yield ComparedValue("run", first.name, second.name)
    yield ComparedValue("of", first.label, second.label)
    yield from _compare_code(first, second)
    has_cluster = bool(first.cluster or second.cluster or first.block or second.block)
    for name, unit, read in _FIGURES:
        if has_cluster or name not in _OF_CLUSTERS:
            yield ComparedValue(name, read(first), read(second), unit)
    if first.cost is not None or second.cost is not None:
        costs = [describe_cost(run) or "unknown" for run in (first, second)]
        if first.cost is None or second.cost is None or first.currency != second.currency:
            yield ComparedValue("cost", *costs)
        else:
            yield ComparedValue("cost", first.cost, second.cost, first.currency)
    packages = [*first.versions, *(name for name in second.versions if name not in first.versions)]
    for name in packages:
        versions = [run.versions.get(name, "none") for run in (first, second)]
        if versions[0] != versions[1]:
            yield ComparedValue(name, versions[0], versions[1])


def _compare_code(first: RunRecord, second: RunRecord) -> Iterator[ComparedValue]:
    """Yield the parameters that differ, and the code if it is known of a run."""
    names = {**first.parameters, **second.parameters}
    for name in names:
        values = [run.parameters.get(name, "none") for run in (first, second)]
        if values[0] != values[1]:
            yield ComparedValue(f"parameter {name}", values[0], values[1])
    if first.code or second.code:
        yield ComparedValue("code", *(run.code[:SHOWN] or "unknown" for run in (first, second)))


def _compare_operations(first: RunRecord, second: RunRecord) -> Iterator[ComparedValue]:
    seconds = [{task.name: task.seconds for task in run.tasks} for run in (first, second)]
    names = {
        name: max(each.get(name, 0.0) for each in seconds) for both in seconds for name in both
    }
    for name in sorted(names, key=lambda name: -names[name])[:_OPERATIONS]:
        of_first, of_second = (each.get(name, 0.0) for each in seconds)
        yield ComparedValue(f"tasks {name}", of_first, of_second, "s")
