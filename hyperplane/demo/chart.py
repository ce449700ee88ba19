"""Chart of the share of late departures in each scheduled hour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hyperplane.core.optional import need
from hyperplane.demo.job import LATE_MINUTES, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR, PEAK, MEAN, QUIET = "#8fb3c9", "#2a6f97", "#c1121f", "#555555"


def require_matplotlib() -> None:
    """Raise ``MissingPackage`` if matplotlib is not installed."""
    need("matplotlib", "demo")


def draw(results: Results) -> Figure:
    """Return a figure, without pyplot's global state, of late departures in each hour."""
    layout = need("matplotlib.layout_engine", "demo").ConstrainedLayoutEngine(
        w_pad=0.15, h_pad=0.15
    )
    figure: Figure = need("matplotlib.figure", "demo").Figure((10, 5.8), layout=layout)
    axes = figure.subplots()
    hours = results.hours[results.hours["departures"] > 0]
    share = 100 * hours["late"] / hours["departures"]
    colors = [PEAK if value == share.max() else BAR for value in share]
    bars = axes.bar(share.index, share, width=0.78, color=colors)
    axes.bar_label(bars, [f"{value:.0f}" for value in share], padding=3, fontsize=9, color=QUIET)
    total = int(hours["departures"].sum())
    _mean_line(axes, 100 * hours["late"].sum() / total)
    _titles(axes, results, total)
    axes.set_xticks(share.index, [f"{hour:02}" for hour in share.index])
    axes.set_xlim(share.index.min() - 0.7, share.index.max() + 0.7)
    axes.set_ylim(0, share.max() * 1.1 or 1)  # an axis from 0 to 1 if nothing is late
    axes.set_xlabel("scheduled hour of departure (local time)", labelpad=8)
    axes.set_ylabel("late departures (% of the hour's departures)", labelpad=8)
    axes.yaxis.grid(visible=True, color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _titles(axes: Axes, results: Results, total: int) -> None:
    origins = ", ".join(sorted(set(results.longest["origin"])))
    first, last = results.departures.index.min(), results.departures.index.max()
    axes.set_title(
        f"Share of flights that departed more than {LATE_MINUTES} minutes late",
        loc="left",
        fontsize=15,
        fontweight="bold",
        pad=34,
    )
    axes.annotate(
        f"by scheduled hour; n = {total:,} departures from {origins}, "
        f"{first.day} {first:%B %Y} to {last.day} {last:%B %Y}",
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 14),
        textcoords="offset points",
        color=QUIET,
    )


def _mean_line(axes: Axes, overall: float) -> None:
    axes.axhline(overall, color=MEAN, linewidth=1.2, linestyle=(0, (5, 3)))
    axes.annotate(
        f"all hours: {overall:.1f} %",
        (0, overall),
        xycoords=("axes fraction", "data"),
        xytext=(4, 4),
        textcoords="offset points",
        color=MEAN,
        fontsize=9,
    )


def save(results: Results, file: Path) -> None:
    """Draw the chart and write it to a PNG file, replacing an existing one."""
    draw(results).savefig(file, format="png", dpi=144)
