"""Print the steps and the results of the demo on a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hyperplane.core.units import format_bytes, plural
from hyperplane.demo.job import LATE_MINUTES, TOP, Results
from hyperplane.demo.run import Outcome, StepListener

if TYPE_CHECKING:
    from distributed import Client, Future

    from hyperplane import SizingAdvice

#: Numbers of flights for each origin, of days and of carriers in the printed tables.
RANKS, DAYS, CARRIERS = 3, 3, 6


class StepPrinter(StepListener):
    """Listener that prints each step."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_prepared(self, url: str, written: bool | None) -> None:
        """Print the path of the data."""
        how = {True: "written now", False: "already there", None: "as given"}[written]
        self._step(1, "data", f"{url} ({how})")

    def on_sized(self, advice: SizingAdvice) -> None:
        """Print the advice without its reasons."""
        rows = advice.rows()
        self._step(2, "size", "cluster for a groupby of this data")
        for label, text in rows:
            if label in {"data", "memory", "cluster", "worker", "pieces", "comfortable", "warning"}:
                self._line(f"{label:<8} {text}")

    def on_starting(self) -> None:
        """Print the call that starts the cluster; the cluster's own output follows."""
        self._step(3, "start", "initialize_cluster(advice)")

    def on_started(self, client: Client) -> None:
        """Print the layout of the cluster."""
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        layout = Counter(
            (worker["nthreads"], worker["memory_limit"], worker["host"]) for worker in workers
        )
        for (threads, memory, host), count in layout.items():
            self._line(
                f"ready: {plural(count, 'worker process')} x {plural(threads, 'thread')} x "
                f"{format_bytes(memory)} on {host}"
            )

    def on_computing(self, futures: list[Future[Any]]) -> None:
        """Show a progress bar until the computation is done."""
        from distributed import progress

        self._step(4, "compute", "longest flights, departures per day, late departures per hour")
        # Only on a terminal, where the bar can be redrawn in place.
        if sys.stdout.isatty():
            progress(futures, notebook=False)

    def on_checked(self, compared: tuple[str, ...]) -> None:
        """Print the comparisons with pandas."""
        self._step(5, "check", "against pandas, on the same files")
        for line in compared or ("skipped: the data needs more memory than is free here",):
            self._line(line)

    def _step(self, number: int, name: str, text: str) -> None:
        self._console.print(f"[bold]{number} {name:<8}[/bold]{escape(text)}", soft_wrap=True)

    def _line(self, text: str) -> None:
        self._console.print(f"  {escape(text)}", soft_wrap=True)


def show(outcome: Outcome, console: Console) -> None:
    """Print a summary of the results, the timings and the files."""
    results = outcome.results
    console.print(
        f"[bold]6 result  [/bold]{outcome.flights:,} flights, {outcome.departures:,} departures, "
        f"{outcome.flights - outcome.departures:,} cancelled\n"
    )
    console.print(_longest(results))
    console.print(_daily(results))
    console.print(_late(results), end="\n\n", soft_wrap=True)
    console.print(_timings(outcome))
    console.print("\n[bold]Files[/bold]")
    for name, file in outcome.files.items():
        console.print(f"{name:<10} {escape(str(file))}", soft_wrap=True)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)


def _longest(results: Results) -> Table:
    table = _table(f"Longest departures: the first {RANKS} of {TOP} of each origin")
    columns = ("origin", "dest", "flight", "date", "miles", "minutes in the air")
    for name in columns:
        table.add_column(name, justify="right" if name in columns[-2:] else "left")
    for row in results.longest.groupby("origin").head(RANKS).itertuples():
        table.add_row(
            str(row.origin),
            str(row.dest),
            f"{row.carrier} {row.flight}",
            f"{row.year}-{row.month:02}-{row.day:02}",
            f"{row.distance:,}",
            f"{row.air_time:.0f}",
        )
    return table


def _daily(results: Results) -> Table:
    busiest = results.departures.sum().nlargest(CARRIERS).index
    table = _table(
        f"\nDepartures and their mean delay in minutes: {DAYS} of {len(results.departures)} days, "
        f"{len(busiest)} of {results.departures.shape[1]} carriers"
    )
    table.add_column("day")
    for carrier in busiest:
        table.add_column(str(carrier), justify="right")
    for day in results.departures.index[:DAYS]:
        counts, means = results.departures.loc[day], results.delays.loc[day]
        cells = (f"{counts[carrier]} {means[carrier]:+6.1f}" for carrier in busiest)
        table.add_row(f"{day:%Y-%m-%d}", *cells)
    return table


def _late(results: Results) -> str:
    hours = results.hours[results.hours["departures"] > 0]
    share = hours["late"] / hours["departures"]
    overall = hours["late"].sum() / hours["departures"].sum()
    return (
        f"\n[bold]More than {LATE_MINUTES} minutes late:[/bold] {overall:.1%} of departures; "
        f"{share.min():.1%} at {share.idxmin():02}:00, {share.max():.1%} at {share.idxmax():02}:00"
    )


def _timings(outcome: Outcome) -> Table:
    table = _table("Seconds; start is from the call to a usable cluster")
    for name in outcome.seconds:
        table.add_column(name, justify="right")
    table.add_row(*(f"{value:.2f}" for value in outcome.seconds.values()))
    return table
