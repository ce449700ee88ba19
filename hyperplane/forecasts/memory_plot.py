"""Plot of the memory of worker processes over a simulated run, with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hyperplane.core.plot_axes import make_axes
from hyperplane.core.units import bytes_to_gb
from hyperplane.forecasts.memory_series import MemorySeries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colors of the limit and of the spill threshold.
LIMIT, SPILL = "#c1121f", "#9a5b00"


def plot_memory(series: MemorySeries, limit: float, spill: float, ax: Axes | None = None) -> Axes:
    """Plot a line for the memory of each process, and lines at the limit and spill threshold.

    ``limit`` and ``spill`` are bytes; 0 for none.
    """
    axes = make_axes(ax, (8, 4))
    count = len(series.processes[0])
    times = np.linspace(0, series.seconds, count + 1)
    for number, values in enumerate(series.processes):
        memory = [bytes_to_gb(round(value)) for value in values]
        axes.stairs(memory, times, label=f"process {number + 1}")
    for size, name, color, style in (
        (limit, "memory limit", LIMIT, "-"),
        (spill, "results are written to disk", SPILL, "--"),
    ):
        if size:
            axes.axhline(bytes_to_gb(round(size)), color=color, linestyle=style, label=name)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time of the tasks (s)")
    axes.set_ylabel("memory of a process (GB)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize="small")
    return axes
