"""Axes of matplotlib for the plots of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.optional import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def make_axes(ax: Any, size: tuple[float, float]) -> Axes:
    """Return the given axes, or those of a new figure, which a notebook shows.

    Raises
    ------
    RequestError
        If ``ax`` is neither axes nor None.
    """
    # A notebook shows figures of pyplot only.
    pyplot = need("matplotlib.pyplot", "plot")
    from matplotlib.axes import Axes

    if ax is None:
        axes: Axes = pyplot.subplots(figsize=size, layout="constrained")[1]
        return axes
    if not isinstance(ax, Axes):
        allowed = "matplotlib axes, or None for a new figure"
        raise RequestError([Fault("ax", repr(ax)[:80], allowed)])
    return ax
