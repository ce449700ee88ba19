"""Plot of the memory needed and the memory of each pool's cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.core.plot_axes import make_axes
from hyperplane.core.units import bytes_to_gb, plural
from hyperplane.sizing.recommend import PoolOption
from hyperplane.spec.pool import listing_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Colors of the recommended pool, of other pools and of the memory needed.
CHOSEN, OTHER, NEEDED = "#2a6f97", "#b8c9d6", "#c1121f"


def draw(options: Sequence[PoolOption], memory_gb: float, ax: Axes | None = None) -> Axes:
    """Draw a bar for the memory of each pool's nodes, and a line at the memory needed.

    The first option is the recommended one.
    """
    axes = make_axes(ax, (8, 0.45 * len(options) + 1.2))
    recommended = options[0].pool
    options = sorted(options, key=lambda option: listing_order(option.pool))
    memory = [bytes_to_gb(option.total_ram) for option in options]
    colors = [CHOSEN if option.pool == recommended else OTHER for option in options]
    bars = axes.barh([option.pool.name for option in options], memory, color=colors)
    axes.bar_label(bars, [plural(option.nodes, "node") for option in options], padding=3)
    axes.axvline(memory_gb, color=NEEDED, linewidth=1.5)
    axes.annotate(
        f"needed: {memory_gb:,.4g} GB",
        (memory_gb, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4, 4),
        textcoords="offset points",
        color=NEEDED,
    )
    axes.set_xlim(0, max([*memory, memory_gb]) * 1.15)
    axes.set_xlabel("memory given (GB)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.invert_yaxis()
    return axes
