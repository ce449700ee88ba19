"""Public functions that search the best parameters of a function or an estimator."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hyperplane.core.active_cluster import find_client_faults, get_active_client
from hyperplane.core.argument_checks import describe_value, find_flag_faults, is_one_of
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.optional import need
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import check_call
from hyperplane.ml.search import estimator_objective, search_identity, search_storage
from hyperplane.ml.search.estimator_objective import make_objective
from hyperplane.ml.search.search_plan import (
    Direction,
    Method,
    SearchPlan,
    TrialPlacement,
    find_option_faults,
)
from hyperplane.ml.search.search_result import SearchResult, make_result
from hyperplane.ml.search.search_run import run_search
from hyperplane.ml.search.search_storage import open_storage
from hyperplane.ml.search.space import list_grid, parse_space

if TYPE_CHECKING:
    from distributed import Client

#: Trials of a search without ``max_trials``, except grid search, which runs all combinations.
_DEFAULT_TRIALS = 20


@check_call(outcome="no trial was started")
def tune(
    objective: Any,
    space: Mapping[str, Any],
    X: Any = None,  # noqa: N803
    y: Any = None,
    *,
    search: Method = "bayesian",
    max_trials: int | None = None,
    max_parallel: int | None = None,
    max_failed: int | None = None,
    direction: Direction = "maximize",
    early_stopping: bool = False,
    cv: Any = 5,
    scoring: Any = None,
    refit: bool = True,
    name: str | None = None,
    seed: int | None = None,
    client: Client | None = None,
    runner: str | None = None,
    runner_options: Any = None,
) -> SearchResult:
    """Search the best parameters of a function or an estimator on the cluster.

    Each trial is one task, or one chunk of a job. The values of Bayesian search are drawn by
    Optuna, from the results of the trials so far. A search with a name is kept: if its process
    ends, the same call runs the remaining trials only.

    Parameters
    ----------
    objective : callable or estimator of scikit-learn
        A function that takes a dict of values and returns a number; with a second parameter it also
        gets the trial, to report intermediate values. Or an estimator, whose mean score in
        cross-validation is the value of a trial.
    space : mapping of str to list, Range or distribution of scipy
        The possible values of each parameter: a list of them, a :class:`Range` of numbers, or
        ``uniform``, ``loguniform`` or ``randint`` of ``scipy.stats``.
    X, y : array or dataframe, optional
        Rows and labels for an estimator, in memory. They are sent to the workers once.
    search : {"grid", "random", "halving", "bayesian"}
        ``grid`` runs all combinations, ``random`` draws values independently. ``halving`` also
        draws them independently, but ends trials early: one of three goes on, with more rows of an
        estimator, or to the next reported step. ``bayesian`` draws values near those of good
        trials.
    max_trials : int, optional
        Number of trials, those of earlier calls with this name included; 20 by default, or all
        combinations of a grid.
    max_parallel : int, optional
        Maximum number of concurrent trials; by default the threads of the cluster.
    max_failed : int, optional
        The search ends with an error when more trials than this have failed. By default it ends if
        the first five have failed.
    direction : {"maximize", "minimize"}
        Whether large or small values of the objective are good. Scores of estimators are always
        maximized.
    early_stopping : bool
        Whether a trial ends early if its intermediate value is below the median of the others at
        the same step. An estimator reports the mean score after each fold.
    cv : int, splitter or list
        Folds of an estimator, as for ``sklearn.model_selection.cross_val_score``. Of a splitter
        that needs groups pass ``list(splitter.split(X, y, groups))``.
    scoring : str or callable, optional
        One score of an estimator, as for ``cross_val_score``.
    refit : bool
        Whether to fit the best estimator to all rows.
    name : str, optional
        Name under which the search is kept in the job store. Without one it is lost when this
        process ends.
    seed : int, optional
        Seed of the drawn values. The values of concurrent trials also depend on which ends first.
    client : distributed.Client, optional
        Client of the cluster; by default that of :func:`hyperplane.initialize_cluster`.
    runner : str, optional
        Run the trials as chunks of a job instead, with this runner, such as ``"local"`` or
        ``"slurm"``; needs a name and no cluster. This call waits for the job. On machines that
        share no disk with this one, the job store must be a database server.
    runner_options : mapping, optional
        Options of the runner, as for :func:`hyperplane.jobs.submit`.

    Returns
    -------
    SearchResult
        ``best_params``, ``best_value``, ``best_estimator``, ``history`` and ``plot()``.

    Raises
    ------
    RequestError
        With every fault of the request; nothing was started.
    SearchFailed
        If too many trials failed. Trials of a named search are kept.
    EngineError
        If the cluster closes.
    JobError
        If the job of a runner did not succeed.

    Examples
    --------
    >>> from hyperplane import plan_cluster, start
    >>> from hyperplane.ml import Range, tune
    >>> client, cluster = start(plan_cluster(1, nprocs=1, nthreads=2, ram_gb_per_proc=0.5))
    >>> def loss(values):
    ...     return (values["x"] - 2) ** 2
    >>> result = tune(loss, {"x": Range(0, 4)}, search="grid", direction="minimize")
    >>> result.best_params, result.best_value, len(result.history)
    ({'x': 2}, 0.0, 5)
    >>> client.close(); cluster.close()
    """
    need("optuna", "ml")
    parameters, faults = parse_space(space)
    is_estimator = estimator_objective.is_estimator(objective)
    if is_estimator:
        faults += estimator_objective.find_data_faults(X, y)
        faults += estimator_objective.find_parameter_faults(objective, list(parameters))
        faults += find_pickle_faults("objective", objective)
        if is_one_of(direction, ("minimize",)):
            advice = "use a score such as 'neg_mean_squared_error'"
            faults.append(Fault("direction", repr(direction), "'maximize' for estimators", advice))
    else:
        faults += _find_objective_faults(objective, X, y)
    faults += find_option_faults(
        name=name,
        seed=seed,
        choices={"search": search, "direction": direction},
        max_trials=max_trials,
        max_parallel=max_parallel,
        max_failed=max_failed,
    )
    faults += find_flag_faults(early_stopping=early_stopping, refit=refit)
    grid_size = None
    if is_one_of(search, ("grid",)):
        grid, grid_faults = list_grid(parameters)
        grid_size = len(grid)
        faults += grid_faults
    if runner is None:
        client = get_active_client() if client is None else client
        faults += find_client_faults(client)
    else:
        faults += _find_runner_faults(runner, name, client)
    if runner_options is not None and not isinstance(runner_options, Mapping):
        faults.append(Fault("runner_options", type(runner_options).__name__, "a mapping, or None"))
    check(faults)
    common = {}
    if is_estimator and name is not None:
        common = search_identity.describe_search(objective, X, y, cv, scoring, parameters)
    plan = SearchPlan(
        objective=common,
        parameters=parameters,
        method=search,
        direction=direction,
        max_trials=max_trials or grid_size or _DEFAULT_TRIALS,
        max_failed=max_failed,
        early_stopping=early_stopping,
        seed=seed,
    )
    function, data = objective, None
    if is_estimator:
        function = make_objective(objective, X, y, cv, scoring, halving=search == "halving")
        data = (X, y)
    placement = TrialPlacement(client, max_parallel, runner, runner_options or {})
    result = run_search(plan, function, placement, name=name, data=data)
    if not is_estimator or not refit or result.best_value is None:
        return result
    if client is None:
        fitted = function.fit(result.best_params, data)
    else:
        fitted = client.submit(function.fit, result.best_params, data, pure=False).result()
    return replace(result, best_estimator=fitted)


@check_call
def read_search(name: str) -> SearchResult:
    """Return the trials of a named search so far, without running any.

    Parameters
    ----------
    name : str
        Name of the search.

    Returns
    -------
    SearchResult
        Values of parameters that JSON cannot contain are texts.

    Raises
    ------
    RequestError
        If there is no search of this name.

    Examples
    --------
    >>> read_search("never-started")
    Traceback (most recent call last):
    ...
    hyperplane.errors.RequestError: 1 fault in the request:
      1. name = 'never-started': expected the name of a search that tune has started
    """
    check(search_storage.find_name_faults(name))
    optuna = need("optuna", "ml")
    try:
        study = optuna.load_study(
            study_name=search_storage.study_name(name), storage=open_storage()
        )
    except KeyError:
        allowed = "the name of a search that tune has started"
        raise RequestError([Fault("name", repr(name), allowed)]) from None
    return make_result(study.trials, study.direction.name.lower())


def _find_objective_faults(objective: Any, X: Any, y: Any) -> list[Fault]:  # noqa: N803
    allowed = "a function of a dict of values, or an estimator of scikit-learn"
    if isinstance(objective, type):
        advice = f"create one: {objective.__name__}()" if hasattr(objective, "fit") else ""
        return [Fault("objective", f"the class {objective.__name__}", allowed, advice)]
    if not callable(objective):
        return [Fault("objective", f"a {type(objective).__name__}", allowed)]
    if inspect.iscoroutinefunction(objective):
        return [Fault("objective", "a coroutine function", allowed)]
    faults = find_pickle_faults("objective", objective)
    advice = "let the function read its data, or use a variable of the module"
    return faults + [
        Fault(argument, f"a {type(value).__name__}", "None, as objective is a function", advice)
        for argument, value in (("X", X), ("y", y))
        if value is not None
    ]


def _find_runner_faults(runner: Any, name: Any, client: Any) -> list[Fault]:
    faults = []
    if not isinstance(runner, str):
        faults.append(Fault("runner", describe_value(runner), "the name of a runner, or None"))
    if name is None:
        allowed = "a name, as the chunks of a job find the search by its name"
        faults.append(Fault("name", "nothing", allowed))
    if client is not None:
        advice = "remove runner, or client"
        faults.append(Fault("client", "a client", "None, as runner is set", advice))
    return faults
