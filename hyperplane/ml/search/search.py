"""A search: its next trial, results and failures; and how searches are created and opened."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, RequestError, SearchFailed
from hyperplane.core.optional import need
from hyperplane.core.units import plural
from hyperplane.ml.search import search_storage
from hyperplane.ml.search.search_identity import list_differences
from hyperplane.ml.search.search_plan import SearchPlan, create_pruner, create_sampler
from hyperplane.ml.search.search_storage import (
    CHUNK,
    COPIED,
    ENQUEUED,
    VALUES,
    as_json,
    enqueue,
    is_interrupted,
    list_result_files,
    open_storage,
    quiet,
    read_result,
    result_file,
    settle,
    tell,
)
from hyperplane.ml.search.space import describe, list_grid, suggest, to_stored
from hyperplane.ml.search.trial import TrialResult

if TYPE_CHECKING:
    import optuna

#: Attribute of a study: its space.
_SPACE = "space"
#: Attribute of a study: what the trials of an estimator have in common, as JSON.
_OBJECTIVE = "objective"
#: A search ends if this many trials have failed and none has succeeded.
_MAX_FAILED_AT_FIRST = 5


class Search:
    """A search with its trials.

    Parameters
    ----------
    plan : SearchPlan
        What it does.
    study : optuna.Study
        Its trials.
    folder : Path or None
        Folder of a named search, where workers write results.
    """

    def __init__(self, plan: SearchPlan, study: optuna.Study, folder: Path | None) -> None:
        self.plan, self.study, self.folder = plan, study, folder
        self._running: dict[int, optuna.Trial] = {}
        self._failed, self._last_error = 0, ""
        trials = [each for each in study.trials if not is_interrupted(each)]
        ended = [each for each in trials if each.state.name != "WAITING"]
        # The trials of a previous search do not count.
        self._started = sum(COPIED not in each.user_attrs for each in ended)
        self._complete = sum(each.state.name == "COMPLETE" for each in ended)
        self._combinations = self._remaining_combinations(trials)

    @property
    def remaining(self) -> int:
        """Number of trials that have not started."""
        return max(0, self.plan.max_trials - self._started)

    def ask(self, chunk: str | None = None) -> tuple[int, dict[str, Any]] | None:
        """Return number and values of a new trial; None if all have started.

        ``chunk`` is the chunk of a job that runs it.
        """
        if chunk is None and self.remaining == 0:
            return None
        # A trial that was interrupted, or enqueued before a kill, comes first.
        if (
            self._combinations is not None
            and chunk is None  # the values of all chunks were enqueued before
            and not self._has_waiting_trial()
        ):
            values = next(self._combinations, None)
            if values is None:
                return None
            enqueue(self.study, to_stored(values, self.plan.parameters))
        trial = self.study.ask()
        if chunk is not None:
            trial.set_user_attr(CHUNK, chunk)
        values = suggest(trial, self.plan.parameters)
        trial.set_user_attr(VALUES, {name: as_json(value) for name, value in values.items()})
        self._running[trial.number] = trial
        self._started += 1
        return trial.number, values

    def enqueue_all(self) -> int:
        """Enqueue the values of all remaining trials if they are known; return their number.

        Chunks of a job run concurrently, and could not draw from a list without repetition.
        """
        if self._combinations is None:
            return self.remaining
        states = (need("optuna", "ml").trial.TrialState.WAITING,)
        count = len(self.study.get_trials(deepcopy=False, states=states))
        for values in self._combinations:
            if count >= self.remaining:
                break
            enqueue(self.study, to_stored(values, self.plan.parameters))
            count += 1
        return count

    def settle_chunk(self, chunk: str) -> bool:
        """End the trial of an earlier attempt at a chunk; return whether it has a result."""
        for trial in self.study.trials:
            if trial.user_attrs.get(CHUNK) != chunk or is_interrupted(trial):
                continue
            if trial.state.name == "RUNNING":
                return settle(self.study, trial, self.folder)
            return True
        return False

    def keep(self, number: int, result: TrialResult) -> None:
        """Write a result to the folder of the search, for the case that it is not recorded."""
        if self.folder is not None:
            result.write(result_file(self.folder, number))

    def report(self, number: int, value: float, step: int) -> bool:
        """Record an intermediate value of a trial; return whether the trial should end."""
        trial = self._running.get(number)
        if trial is None:
            return False
        with warnings.catch_warnings():  # a trial that a worker repeats reports its steps again
            warnings.simplefilter("ignore")
            trial.report(value, step)
        return self.plan.prunes and trial.should_prune()

    def record(self, number: int, result: TrialResult) -> None:
        """Record the result of a running trial.

        Raises
        ------
        SearchFailed
            If too many trials have failed.
        """
        trial = self._running.pop(number)
        tell(self.study, trial, result)
        self._complete += result.state == "complete"
        if result.state == "failed":
            self._failed += 1
            self._last_error = result.error
            self._check_failures()

    def check_failures(self) -> None:
        """Raise :class:`SearchFailed` if too many trials have failed in other processes."""
        trials = [each for each in self.study.trials if not is_interrupted(each)]
        failed = [each for each in trials if each.state.name == "FAIL"]
        self._complete = sum(each.state.name == "COMPLETE" for each in trials)
        self._failed = len(failed)
        if failed:
            self._last_error = read_result(failed[-1]).get("error", "")
            self._check_failures()

    def _check_failures(self) -> None:
        limit = self.plan.max_failed
        if self._failed > limit if limit is not None else self._seems_hopeless():
            count = f"{plural(self._failed, 'trial')} failed"
            message = f"{count}{self._describe_name()}; the last with {self._last_error}"
            raise SearchFailed(message, failed=self._failed, last=self._last_error)

    def _seems_hopeless(self) -> bool:
        at_first = min(_MAX_FAILED_AT_FIRST, self.plan.max_trials)
        return self._complete == 0 and self._failed >= at_first

    def _describe_name(self) -> str:
        return f" in the search {self.study.study_name}" if self.folder is not None else ""

    def _has_waiting_trial(self) -> bool:
        states = (need("optuna", "ml").trial.TrialState.WAITING,)
        return bool(self.study.get_trials(deepcopy=False, states=states))

    def _remaining_combinations(self, trials: list[Any]) -> Iterator[dict[str, Any]] | None:
        """Return combinations without a trial; None if values are drawn one by one."""
        parameters = self.plan.parameters
        if self.plan.method == "bayesian":
            return None
        grid, faults = list_grid(parameters)
        if faults:
            return None
        if self.plan.method != "grid":
            random.Random(self.plan.seed).shuffle(grid)  # noqa: S311 - no secret
        used = {_freeze(each.params or each.user_attrs.get(ENQUEUED, {})) for each in trials}
        return (row for row in grid if _freeze(to_stored(row, parameters)) not in used)


def _freeze(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, repr(value)) for name, value in values.items()))


def create_search(plan: SearchPlan, previous: str | None = None) -> Search:
    """Return a search that only this process knows; ``previous`` is as for :func:`open_search`."""
    optuna = need("optuna", "ml")
    with quiet():
        study = optuna.create_study(
            direction=plan.direction,
            pruner=create_pruner(plan.method, plan.early_stopping),
        )
    return _begin(plan, study, None, previous)


def open_search(plan: SearchPlan, name: str, folder: Path, previous: str | None = None) -> Search:
    """Return a named search, with the trials of earlier calls.

    Trials that were running when an earlier process ended get the results that their workers have
    written, or run again with the same values. ``previous`` is the name of a search whose trials
    are copied into this one.

    Raises
    ------
    RequestError
        If the name, or ``previous``, belongs to a search with another space or direction.
    """
    with quiet():
        study = need("optuna", "ml").create_study(
            storage=open_storage(),
            study_name=search_storage.study_name(name),
            direction=plan.direction,
            pruner=create_pruner(plan.method, plan.early_stopping),
            load_if_exists=True,
        )
    _check_same_search(study, plan, name, "name")
    _settle_interrupted(study, folder)
    return _begin(plan, study, folder, previous)


def join_search(plan: SearchPlan, name: str, folder: Path) -> Search:
    """Return a named search that other processes run, too."""
    study = need("optuna", "ml").load_study(
        study_name=search_storage.study_name(name),
        storage=open_storage(),
        pruner=create_pruner(plan.method, plan.early_stopping),
    )
    study.sampler = create_sampler(plan.method, plan.seed, len(study.trials))
    return Search(plan, study, folder)


def _begin(plan: SearchPlan, study: Any, folder: Path | None, previous: str | None) -> Search:
    study.set_user_attr(_SPACE, describe(plan.parameters))
    study.set_user_attr(_OBJECTIVE, json.dumps(dict(plan.objective)))
    if previous is not None:
        _copy_trials(study, plan, previous)
    study.sampler = create_sampler(plan.method, plan.seed, len(study.trials))
    return Search(plan, study, folder)


def _copy_trials(study: Any, plan: SearchPlan, previous: str) -> None:
    """Copy the trials of another search that have ended, unless they were copied before."""
    optuna = need("optuna", "ml")
    try:
        source = optuna.load_study(
            study_name=search_storage.study_name(previous), storage=open_storage()
        )
    except KeyError:
        allowed = "the name of a search that was kept"
        raise RequestError([Fault("resumePreviousJobId", repr(previous), allowed)]) from None
    _check_same_search(source, plan, previous, "resumePreviousJobId")
    copied = {trial.user_attrs.get(COPIED) for trial in study.trials}
    for trial in source.trials:
        key = f"{previous}/{trial.number}"
        if trial.state.name in ("COMPLETE", "PRUNED") and key not in copied:
            attributes = {**trial.user_attrs, COPIED: key}
            study.add_trial(
                optuna.create_trial(
                    state=trial.state,
                    value=trial.value if trial.state.name == "COMPLETE" else None,
                    params=trial.params,
                    distributions=trial.distributions,
                    user_attrs=attributes,
                    intermediate_values=trial.intermediate_values,
                )
            )


def _check_same_search(study: Any, plan: SearchPlan, name: str, argument: str) -> None:
    faults = []
    direction = study.direction.name.lower()
    advice = f"use another {argument} than {name!r}, or the same values as there"
    if direction != plan.direction:
        allowed = f"{direction!r}, as in the search of this name"
        faults.append(Fault("direction", repr(plan.direction), allowed, advice))
    earlier = study.user_attrs.get(_SPACE)
    if earlier is not None and earlier != describe(plan.parameters):
        old, new = json.loads(earlier), json.loads(describe(plan.parameters))
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        allowed = "the parameters of the search of this name"
        faults.append(Fault("space", f"other values of {', '.join(changed)}", allowed, advice))
    stored = study.user_attrs.get(_OBJECTIVE)  # earlier versions did not keep it
    if stored is not None:
        for key in list_differences(json.loads(stored), dict(plan.objective)):
            allowed = "the one of the search of this name"
            faults.append(Fault(key, "another value than before", allowed, advice))
    if faults:
        raise RequestError(faults)


def _settle_interrupted(study: Any, folder: Path) -> None:
    """End the trials that ran when an earlier process ended, and remove files of results.

    They are not removed earlier, such as in ``record``: until the scheduler has released a task
    that has ended, Dask repeats it if its worker dies, and it then returns the result in the file.
    """
    for trial in study.trials:
        if trial.state.name == "RUNNING":
            settle(study, trial, folder)
    for file in list_result_files(folder):
        file.unlink(missing_ok=True)
