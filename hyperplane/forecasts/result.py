"""Result of a forecast: memory and time of a job on a layout of worker processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.html_output import Markup, make_bar, make_output, make_rows
from hyperplane.core.public_calls import check_call
from hyperplane.core.text_tables import as_text
from hyperplane.core.units import format_bytes, plural, round_bytes
from hyperplane.forecasts.advise import advise_layout
from hyperplane.forecasts.evaluate import SampledJob, list_memory
from hyperplane.forecasts.measured_advice import MeasuredAdvice
from hyperplane.forecasts.memory_picture import draw_memory
from hyperplane.forecasts.memory_series import MemorySeries
from hyperplane.forecasts.records import KeyStatistics
from hyperplane.forecasts.simulate import Timeline
from hyperplane.spec.pool import PoolSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class Forecast:
    """Forecast of the memory and the time of a job.

    Memory is that of worker processes as the system counts it (resident memory), with which memory
    limits are compared. It is what the job takes if nothing is written to disk for lack of memory.

    Parameters
    ----------
    peak : int
        Largest memory of the largest worker process, in bytes; 0 if nothing is known.
    low, high : int
        Interval in which the peak is expected, in bytes.
    total : int
        Largest memory of all worker processes together, in bytes.
    cpu_s : float
        CPU seconds of all tasks.
    wall_s : float
        Seconds from the first to the last task, if each thread has a core.
    cpu_low, cpu_high, wall_low, wall_high : float
        Intervals in which these times are expected, with the same confidence.
    refused : bool
        Whether the figures are not reliable or missing; ``reasons`` says why.
    reasons : tuple of str
        Why the forecast is refused, or why its interval is wide.
    cost : float
        CPU seconds of the sample, with the start of its process.
    confidence : float
        Nominal probability that the peak is in the interval.
    terms : tuple of (str, int)
        What the peak consists of: names and bytes, the largest first.
    layout : str
        Worker processes and threads.
    limit : int
        Memory limit of a worker process in bytes; 0 for none.
    read, shuffled, written : int
        Bytes of files that are read, of rows that are shuffled, and of files that are written; the
        last two are only known from a sample.
    tasks, sampled : int
        Number of the tasks of the job, and of those that the sample has run.
    keys : tuple of KeyStatistics
        Keys of joins, shuffles, sorts and group-bys of local files.
    runs : tuple of str
        Names of the records of earlier runs from which the figures are, without a sample.
    job : SampledJob or None
        What simulations of other layouts need; None if no sample has run.
    typical : Timeline or None
        The simulation with the peak of the forecast; None if no sample has run.
    gaps : float
        Bytes of the peak that are freed memory which a process cannot use again.
    spill : float
        Fraction of the limit from which on results are written to disk; 0 if they are not.
    resample : callable or None
        Returns a forecast from a sample, in place of this one from earlier runs.
    """

    peak: int
    low: int
    high: int
    total: int
    cpu_s: float
    wall_s: float
    refused: bool
    reasons: tuple[str, ...]
    cost: float
    confidence: float
    terms: tuple[tuple[str, int], ...] = ()
    layout: str = ""
    limit: int = 0
    read: int = 0
    shuffled: int = 0
    written: int = 0
    cpu_low: float = 0.0
    cpu_high: float = 0.0
    wall_low: float = 0.0
    wall_high: float = 0.0
    tasks: int = 0
    sampled: int = 0
    keys: tuple[KeyStatistics, ...] = ()
    runs: tuple[str, ...] = ()
    job: SampledJob | None = field(default=None, compare=False)
    typical: Timeline | None = field(default=None, compare=False)
    gaps: float = 0.0
    spill: float = 0.0
    resample: Callable[[], Forecast] | None = field(default=None, compare=False)

    @property
    def largest_term(self) -> str:
        """Name of the largest part of the peak; empty if nothing is known."""
        return self.terms[0][0] if self.terms else ""

    @cached_property
    def series(self) -> MemorySeries | None:
        """Memory of each worker process over the simulated run; None if no sample has run."""
        if self.job is None or self.typical is None:
            return None
        return list_memory(self.job.model, self.job.layout, self.typical, self.gaps)

    def to_svg(self) -> str:
        """Return a picture of the memory over the simulated run; empty if no sample has run."""
        if self.series is None:
            return ""
        return draw_memory(self.series, self.limit, self.spill * self.limit, self.layout)

    @check_call
    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the memory of each worker process over the simulated run.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        RequestError
            If no sample has run.
        MissingPackage
            If matplotlib is not installed (extra ``plot``).
        """
        from hyperplane.forecasts.memory_plot import plot_memory

        if self.series is None:
            advice = "hyperplane.forecast(collection, plan, history=False) takes a sample"
            allowed = "a forecast with a sample"
            raise RequestError([Fault("forecast", "one without a sample", allowed, advice)])
        return plot_memory(self.series, self.limit, self.spill * self.limit, ax)

    def as_arguments(self) -> dict[str, Any]:
        """Return the advice of :meth:`advise` as arguments of ``initialize_cluster``."""
        return self._advice.as_arguments()

    @cached_property
    def _advice(self) -> MeasuredAdvice:
        """Advice for a cluster that is planned from this forecast, which asks several times."""
        return self.advise()

    @check_call(outcome="nothing was advised")
    def advise(
        self, pool: str | PoolSpec | None = None, *, local: bool | None = None
    ) -> MeasuredAdvice:
        """Simulate the job on all layouts, and recommend the cheapest one on which it fits.

        No more tasks are run, except that a forecast from earlier runs of the job has no sample: it
        is taken now.

        Parameters
        ----------
        pool : str or PoolSpec, optional
            The only pool to consider; by default all without GPUs.
        local : bool, optional
            Whether layouts of this machine are considered, or those of pools. By default it depends
            on where the processes of the plan, or of the running cluster, are.

        Returns
        -------
        MeasuredAdvice
            Prints as a table, and can be passed to ``initialize_cluster``.

        Raises
        ------
        RequestError
            If the forecast is refused for a reason that all layouts share.
        DoesNotFit
            If the job fits on no layout.

        Examples
        --------
        >>> import dask.array as da
        >>> import hyperplane
        >>> plan = hyperplane.plan_cluster(num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=2)
        >>> numbers = da.random.random((4000, 4000), chunks=(500, 4000))
        >>> advice = hyperplane.forecast(numbers.sum(), plan).advise(local=False)
        >>> advice.nodes
        1
        """
        if self.resample is not None:
            return self.resample().advise(pool, local=local)
        return advise_layout(self.job, self.reasons, pool, local)

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the printed forecast: labels and texts."""
        found: list[tuple[str, str]] = []
        if self.peak:
            interval = f"{round_bytes(self.low)} to {round_bytes(self.high)}"
            percent = f"{self.confidence:.0%}".replace("%", " %")
            text = f"{round_bytes(self.peak)} in the largest worker process"
            found = [
                ("peak", f"{text} ({interval} with {percent} confidence)"),
                *(("mostly", f"{name}, {round_bytes(size)}") for name, size in self.terms[:1]),
                ("total", f"{round_bytes(self.total)} in {self.layout}"),
                ("time", self._describe_time()),
            ]
        if self.limit:
            found.append(("limit", f"{format_bytes(self.limit)} for each worker process"))
        sizes = ("read", self.read), ("shuffled", self.shuffled), ("written", self.written)
        data = [f"{round_bytes(size)} {what}" for what, size in sizes if size]
        if data:
            found.append(("data", ", ".join(data)))
        found += [("key", str(key)) for key in self.keys if key.is_notable]
        label = "refused" if self.refused else "note"
        reasons = [(label, reason) for reason in self.reasons]
        if self.runs:
            text = f"{plural(len(self.runs), 'earlier run')}; nothing was sampled"
            return [*found, ("history", text), *reasons]
        sample = f"{self.sampled} of {plural(self.tasks, 'task')}, {self.cost:.3g} CPU s"
        return [*found, ("sample", sample), *reasons]

    def _describe_time(self) -> str:
        times = (
            (self.cpu_s, self.cpu_low, self.cpu_high, "CPU s"),
            (self.wall_s, self.wall_low, self.wall_high, "s of wall time"),
        )
        return ", ".join(
            f"{value:.3g} {unit}" + (f" ({low:.3g} to {high:.3g})" if high else "")
            for value, low, high, unit in times
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as values that JSON can represent."""
        return {
            "peak": self.peak,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "total": self.total,
            "limit": self.limit,
            "layout": self.layout,
            "cpu_s": self.cpu_s,
            "cpu_low": self.cpu_low,
            "cpu_high": self.cpu_high,
            "wall_s": self.wall_s,
            "wall_low": self.wall_low,
            "wall_high": self.wall_high,
            "read": self.read,
            "shuffled": self.shuffled,
            "written": self.written,
            "tasks": self.tasks,
            "sampled": self.sampled,
            "cost": self.cost,
            "refused": self.refused,
            "reasons": list(self.reasons),
            "runs": list(self.runs),
            "terms": [{"name": name, "bytes": size} for name, size in self.terms],
            "keys": [asdict(key) for key in self.keys],
        }

    def to_json(self) -> str:
        """Return the forecast as a JSON document."""
        return json.dumps(self.to_dict(), indent=1)

    def __str__(self) -> str:
        return as_text(self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows: list[tuple[str, str]] = []
        for label, text in self.rows():
            if label == "peak" and self.limit:
                style = "hp-bad" if self.high > self.limit else "hp-good"
                widest = max(self.high, self.limit)
                bar = make_bar(self.peak / widest, text, style, mark=self.limit / widest)
                rows.append((label, bar))
            else:
                rows.append((label, text))
        return make_output(make_rows(rows), Markup(self.to_svg()))
