"""Results of a search: the best values, a history as a dataframe, and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hyperplane.core.optional import need
from hyperplane.core.plot_axes import make_axes
from hyperplane.core.public_calls import check_call
from hyperplane.ml.search.search_plan import Direction
from hyperplane.ml.search.search_storage import is_interrupted, read_result, read_values
from hyperplane.ml.search.space import Parameter, from_stored

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
_COLORS = {"complete": "#2a6f97", "pruned": "#b0b0b0", "failed": "#c1121f"}


@check_call
@dataclass(frozen=True)
class SearchResult:
    """Result of :func:`tune`.

    Parameters
    ----------
    history : pandas.DataFrame
        One row for each trial, in order of their numbers, with the columns ``trial``, ``state``
        (``complete``, ``pruned``, ``failed``, ``interrupted`` or ``running``), ``value``,
        ``seconds``, ``worker``, ``error``, and one for each parameter, named ``params.NAME``.
    best_params : dict
        Values of the parameters of the best complete trial.
    best_value : float or None
        Its value; None if no trial is complete.
    direction : {"maximize", "minimize"}
        Whether the best value is the largest or the smallest.
    best_estimator : object or None
        The estimator with the best values, fitted to all rows; None if the search had a function.
    """

    history: pd.DataFrame = field(repr=False)
    best_params: dict[str, Any]
    best_value: float | None
    direction: Direction
    best_estimator: Any = None

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the value of each trial, and the best value so far.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            A notebook shows them; ``axes.figure.savefig("search.png")`` saves them.

        Raises
        ------
        RequestError
            If ``ax`` is neither axes nor None.
        MissingPackage
            If matplotlib is not installed (extra ``plot``).
        """
        axes = make_axes(ax, (8, 4.5))
        shown = self.history[self.history["value"].notna()]
        for state, rows in shown.groupby("state"):
            color = _COLORS.get(str(state), "#555555")
            axes.scatter(rows["trial"], rows["value"], s=24, color=color, label=str(state))
        complete = shown[shown["state"] == "complete"]
        values = complete["value"]
        best = values.cummax() if self.direction == "maximize" else values.cummin()
        axes.step(complete["trial"], best, where="post", color="#222222", label="best so far")
        failed = self.history[self.history["state"] == "failed"]
        for number in failed["trial"]:
            axes.axvline(number, color=_COLORS["failed"], alpha=0.4, linewidth=1)
        axes.set_xlabel("trial")
        axes.set_ylabel("value")
        axes.set_title(_title(self), loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        if len(shown):
            axes.legend(frameon=False)
        return axes


def make_history(trials: list[Any]) -> pd.DataFrame:
    """Return the dataframe of the trials of a study of Optuna."""
    pandas = need("pandas", "ml")
    rows = []
    for trial in trials:
        if trial.state.name == "WAITING":
            continue
        result = read_result(trial)
        rows.append(
            {
                "trial": trial.number,
                "state": "interrupted" if is_interrupted(trial) else _STATES[trial.state.name],
                "value": result.get("value"),
                "seconds": result["ended"] - result["started"] if result else None,
                "worker": result.get("worker", ""),
                "error": result.get("error", ""),
                **{f"params.{name}": value for name, value in read_values(trial).items()},
            }
        )
    columns = ["trial", "state", "value", "seconds", "worker", "error"]
    frame: pd.DataFrame = pandas.DataFrame(rows, columns=None if rows else columns)
    return frame.astype({"value": "float64", "seconds": "float64"})


def make_result(
    trials: list[Any], direction: Direction, parameters: Mapping[str, Parameter] | None = None
) -> SearchResult:
    """Return the result of a search from the trials of its study.

    Without ``parameters``, values that JSON cannot contain are texts.
    """
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    history = make_history(trials)
    if not complete:
        return SearchResult(history, {}, None, direction)
    choose = max if direction == "maximize" else min
    best = choose(complete, key=lambda trial: trial.value)
    values = read_values(best) if parameters is None else from_stored(best.params, parameters)
    return SearchResult(history, values, best.value, direction)


def _title(result: SearchResult) -> str:
    count = int((result.history["state"] == "complete").sum())
    if result.best_value is None:
        return f"{count} complete trials"
    return f"{count} complete trials; best value {result.best_value:.6g}"
