"""Run of a search: open it, run its remaining trials, return its result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from hyperplane.core.progress import show_progress
from hyperplane.ml.search import search_storage
from hyperplane.ml.search.cluster_trials import run_on_cluster
from hyperplane.ml.search.job_trials import run_as_job
from hyperplane.ml.search.search import create_search, open_search
from hyperplane.ml.search.search_plan import SearchPlan, TrialPlacement
from hyperplane.ml.search.search_result import SearchResult, make_result


def run_search(
    plan: SearchPlan,
    objective: Callable[..., Any],
    placement: TrialPlacement,
    *,
    name: str | None = None,
    previous: str | None = None,
    data: Any = None,
) -> SearchResult:
    """Run the remaining trials of a search.

    Parameters
    ----------
    plan : SearchPlan
        What the search does.
    objective : callable
        Function of values, or of values and the trial.
    placement : TrialPlacement
        Where its trials run.
    name : str, optional
        Name under which it is kept; required for a job.
    previous : str, optional
        Name of a search whose trials this one begins with.
    data : object, optional
        Passed to the objective by this name.

    Returns
    -------
    SearchResult
    """
    with nullcontext() if name is None else search_storage.exclusive(name) as folder:
        if name is None or folder is None:
            search = create_search(plan, previous)
        else:
            search = open_search(plan, name, folder, previous)
        if placement.client is None:
            run_as_job(search, name or "", objective, placement, data)
        else:
            parallel = placement.max_parallel or sum(placement.client.nthreads().values())
            with show_progress("trials", search.remaining) as advance:
                run_on_cluster(search, objective, placement.client, parallel, advance, data)
        return make_result(search.study.trials, plan.direction, plan.parameters)
