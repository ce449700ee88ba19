"""What a search does: its plan, where its trials run, the checks of its options, its sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from hyperplane.core.argument_checks import describe_value, find_count_faults, is_one_of
from hyperplane.core.errors import Fault
from hyperplane.core.optional import need
from hyperplane.core.units import whole_number
from hyperplane.ml.search.search_storage import find_name_faults
from hyperplane.ml.search.space import Parameter

if TYPE_CHECKING:
    import optuna
    from distributed import Client

Method = Literal["grid", "random", "halving", "bayesian"]
Direction = Literal["maximize", "minimize"]
_CHOICES = {"search": get_args(Method), "direction": get_args(Direction)}
#: In successive halving one of this many trials reaches the next step.
HALVING_FACTOR = 3
#: Complete trials before the median of their values ends others early.
_STARTUP_TRIALS = 5


@dataclass(frozen=True)
class SearchPlan:
    """What a search does, apart from its objective.

    Parameters
    ----------
    parameters : mapping of str to Parameter
        The search space.
    method : {"grid", "random", "halving", "bayesian"}
        How the values of new trials are drawn.
    direction : {"maximize", "minimize"}
        Whether large or small values of the objective are good.
    max_trials : int
        Number of trials that end; interrupted ones do not count.
    max_failed : int or None
        Maximum number of failed trials; None for the default rule.
    early_stopping : bool
        Whether trials with bad intermediate values end early.
    seed : int or None
        Seed of the drawn values.
    objective : mapping of str to str
        What the trials of an estimator have in common, by argument, as text or hash: values of
        other estimators, rows or scores cannot be compared. Empty for a function.
    """

    parameters: Mapping[str, Parameter]
    method: Method
    direction: Direction
    max_trials: int
    max_failed: int | None
    early_stopping: bool
    seed: int | None
    objective: Mapping[str, str] = field(default_factory=dict)

    @property
    def prunes(self) -> bool:
        """Whether trials may end early."""
        return self.early_stopping or self.method == "halving"


@dataclass(frozen=True)
class TrialPlacement:
    """Where the trials of a search run: as tasks of a cluster, or as chunks of a job.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster; None for a job.
    max_parallel : int or None
        Maximum number of concurrent trials; None for the threads of the cluster, or for the limit
        of the runner.
    runner : str or None
        The runner of the job; None for a cluster.
    runner_options : mapping
        Options of the runner.
    """

    client: Client | None
    max_parallel: int | None
    runner: str | None = None
    runner_options: Mapping[str, Any] = field(default_factory=dict)


def find_option_faults(
    *, name: Any, seed: Any, choices: Mapping[str, Any] | None = None, **counts: Any
) -> list[Fault]:
    """Return the faults of the options that the functions of this package share.

    ``choices`` has ``search`` and ``direction``; ``counts`` are numbers of trials.
    """
    faults = [] if name is None else find_name_faults(name)
    for argument, value in (choices or {}).items():
        known = _CHOICES[argument]
        if value is None or not is_one_of(value, known):
            faults.append(Fault(argument, describe_value(value), f"one of {', '.join(known)}"))
    for argument, value in counts.items():
        if value is not None:
            faults += find_count_faults(argument, value, least=int(argument != "max_failed"))
    if seed is not None and whole_number(seed) is None:
        faults.append(Fault("seed", describe_value(seed), "a whole number or None"))
    return faults


def create_sampler(method: Method, seed: int | None, trials: int) -> optuna.samplers.BaseSampler:
    """Return the sampler of a method.

    ``trials`` is the number of existing trials: with the seed alone, a resumed search would draw
    the values of its first trials again.
    """
    samplers = need("optuna.samplers", "ml")
    number = None if seed is None else (seed + trials) % 2**32
    if method == "bayesian":
        # Running trials count as bad, so that concurrent trials differ.
        sampler: optuna.samplers.BaseSampler = samplers.TPESampler(seed=number, constant_liar=True)
    else:
        sampler = samplers.RandomSampler(seed=number)
    return sampler


def create_pruner(method: Method, early_stopping: bool) -> optuna.pruners.BasePruner:
    """Return the pruner of a method, which ends trials early.

    Examples
    --------
    >>> type(create_pruner("halving", False)).__name__
    'SuccessiveHalvingPruner'
    """
    pruners = need("optuna.pruners", "ml")
    if method == "halving":
        pruner: optuna.pruners.BasePruner = pruners.SuccessiveHalvingPruner(
            min_resource=1, reduction_factor=HALVING_FACTOR
        )
    elif early_stopping:
        pruner = pruners.MedianPruner(n_startup_trials=_STARTUP_TRIALS)
    else:
        pruner = pruners.NopPruner()
    return pruner
