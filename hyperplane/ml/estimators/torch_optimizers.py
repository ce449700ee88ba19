"""Optimizers of PyTorch under Orca's names and arguments, with schedules of learning rates.

``from_torch`` takes them in place of an optimizer of PyTorch. Orca's ``LBFGS`` and ``Ftrl`` are not
supported.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

from hyperplane.core.argument_checks import describe_value, find_count_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import need


def _find_number_faults(settings: Any) -> list[Fault]:
    """Return a fault for each field of type float that has no finite number of at least 0."""
    faults = []
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.type != "float" and (each.type != "float | None" or value is None):
            continue
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not (is_number and 0 <= value < math.inf):
            faults.append(Fault(each.name, describe_value(value), "a number of at least 0"))
    return faults


class Scheduler(ABC):
    """Base class of schedules of learning rates; steps are counted from 0."""

    @abstractmethod
    def get_rate(self, step: int, rate: float) -> float:
        """Return the rate of a step, if ``rate`` is the rate of step 0."""

    def create(self, optimizer: Any) -> Any:
        """Return the scheduler of PyTorch."""
        schedulers = need("torch.optim.lr_scheduler", extra="torch")
        first = optimizer.param_groups[0]["lr"]
        # Functions have no state; objects would be part of checkpoints.
        return schedulers.LambdaLR(optimizer, lambda step: self.get_rate(step, first) / first)


@dataclass(frozen=True)
class Default(Scheduler):
    """Divide the rate by ``1 + step * learningrate_decay``; the decay is that of the optimizer."""

    learningrate_decay: float = 0.0

    def get_rate(self, step: int, rate: float) -> float:
        """Return the rate of a step."""
        return rate / (1 + step * self.learningrate_decay)


@dataclass(frozen=True)
class Poly(Scheduler):
    """Multiply the rate by ``(1 - step / max_iteration) ** power``; 0 after ``max_iteration``."""

    power: float
    max_iteration: int

    def __post_init__(self) -> None:
        check(_find_number_faults(self) + find_count_faults("max_iteration", self.max_iteration))

    def get_rate(self, step: int, rate: float) -> float:
        """Return the rate of a step."""
        return rate * float(max(0.0, 1 - step / self.max_iteration) ** self.power)


@dataclass(frozen=True)
class Exponential(Scheduler):
    """Multiply the rate by ``decay_rate ** (step / decay_step)``.

    With ``stair_case``, the exponent is rounded down to a whole number.
    """

    decay_step: int
    decay_rate: float
    stair_case: bool = False

    def __post_init__(self) -> None:
        check(_find_number_faults(self) + find_count_faults("decay_step", self.decay_step))

    def get_rate(self, step: int, rate: float) -> float:
        """Return the rate of a step."""
        power = step // self.decay_step if self.stair_case else step / self.decay_step
        return float(rate * self.decay_rate**power)


@dataclass(frozen=True)
class StepSchedule(Scheduler):
    """Multiply the rate by ``gamma`` after every ``step_size`` steps."""

    step_size: int
    gamma: float

    def __post_init__(self) -> None:
        check(_find_number_faults(self) + find_count_faults("step_size", self.step_size))

    def get_rate(self, step: int, rate: float) -> float:
        """Return the rate of a step."""
        return float(rate * self.gamma ** (step // self.step_size))


@dataclass(frozen=True)
class MultiStep(Scheduler):
    """Multiply the rate by ``gamma`` at each of the steps ``step_sizes``."""

    step_sizes: Sequence[int]
    gamma: float

    def __post_init__(self) -> None:
        faults = _find_number_faults(self)
        if not isinstance(self.step_sizes, list | tuple):
            given = describe_value(self.step_sizes)
            faults.append(Fault("step_sizes", given, "a list of numbers of steps"))
        else:
            for number, each in enumerate(self.step_sizes):
                faults += find_count_faults(f"step_sizes[{number}]", each)
        check(faults)

    def get_rate(self, step: int, rate: float) -> float:
        """Return the rate of a step."""
        return float(rate * self.gamma ** sum(step >= each for each in self.step_sizes))


@dataclass(frozen=True)
class Warmup(Scheduler):
    """Add ``delta`` to the rate at each step."""

    delta: float

    def __post_init__(self) -> None:
        check(_find_number_faults(self))

    def get_rate(self, step: int, rate: float) -> float:
        """Return the rate of a step."""
        return rate + self.delta * step


class SequentialSchedule(Scheduler):
    """Apply several schedules in turn, each from the last rate of the one before.

    Parameters
    ----------
    iteration_per_epoch : int
        Has no effect: :meth:`add` takes numbers of steps.

    Examples
    --------
    >>> both = SequentialSchedule(1).add(Warmup(0.5), 3).add(StepSchedule(1, 0.1), 2)
    >>> [round(both.get_rate(step, 1.0), 2) for step in range(5)]
    [1.0, 1.5, 2.0, 2.0, 0.2]
    """

    def __init__(self, iteration_per_epoch: int) -> None:
        check(find_count_faults("iteration_per_epoch", iteration_per_epoch))
        self._schedules: list[tuple[Scheduler, int]] = []

    def add(self, scheduler: Scheduler, max_iteration: int) -> SequentialSchedule:
        """Add a schedule for a number of steps; return this object."""
        faults = find_count_faults("max_iteration", max_iteration)
        if not isinstance(scheduler, Scheduler) or isinstance(scheduler, Plateau):
            allowed = "a schedule other than Plateau"
            faults.append(Fault("scheduler", describe_value(scheduler), allowed))
        check(faults)
        self._schedules.append((scheduler, int(max_iteration)))
        return self

    def get_rate(self, step: int, rate: float) -> float:
        """Return the rate of a step."""
        for number, (scheduler, count) in enumerate(self._schedules, 1):
            if step < count or number == len(self._schedules):
                return scheduler.get_rate(step, rate)
            step, rate = step - count, scheduler.get_rate(count - 1, rate)
        return rate


@dataclass(frozen=True)
class Plateau(Scheduler):
    """Multiply the rate by ``factor`` after ``patience`` epochs without a smaller loss.

    The loss is that of validation, or of training without validation data. ``epsilon`` is the
    smallest decrease that counts, ``cooldown`` the number of epochs after a change in which none
    are counted.
    """

    monitor: str = "Loss"
    factor: float = 0.1
    patience: int = 10
    mode: str = "min"
    epsilon: float = 1e-4
    cooldown: int = 0
    min_lr: float = 0.0

    def __post_init__(self) -> None:
        faults = _find_number_faults(self)
        for name in ("patience", "cooldown"):
            faults += find_count_faults(name, getattr(self, name), 0)
        for name, allowed in (("monitor", "loss"), ("mode", "min")):
            value = getattr(self, name)
            if not isinstance(value, str) or value.lower() != allowed:
                faults.append(Fault(name, describe_value(value), repr(allowed)))
        check(faults)

    def get_rate(self, step: int, rate: float) -> float:
        """Return the first rate; later ones depend on the loss."""
        return rate

    def create(self, optimizer: Any) -> Any:
        """Return the scheduler of PyTorch."""
        schedulers = need("torch.optim.lr_scheduler", extra="torch")
        return schedulers.ReduceLROnPlateau(
            optimizer,
            factor=self.factor,
            patience=self.patience,
            threshold=self.epsilon,
            threshold_mode="abs",
            cooldown=self.cooldown,
            min_lr=self.min_lr,
        )


class Optimizer(ABC):
    """Base class of optimizers: ``optimizer(model, config)`` returns that of PyTorch."""

    #: Divides the rate by ``1 + step * learningrate_decay``.
    learningrate_decay: float = 0.0

    @property
    def schedule(self) -> Scheduler | None:
        """Schedule of the rate; None for a constant rate."""
        return Default(self.learningrate_decay) if self.learningrate_decay else None

    @abstractmethod
    def create(self, torch: Any, parameters: Any) -> Any:
        """Return the optimizer of parameters."""

    def __call__(self, model: Any, config: Mapping[str, Any]) -> Any:
        """Return the optimizer of a model."""
        return self.create(need("torch", extra="torch"), model.parameters())

    def create_scheduler(self, optimizer: Any, config: Mapping[str, Any]) -> Any:
        """Return the scheduler of an optimizer; None if its rate is constant."""
        return self.schedule.create(optimizer) if self.schedule else None

    def __post_init__(self) -> None:
        check(self._find_faults())

    def _find_faults(self) -> list[Fault]:
        faults = _find_number_faults(self)
        if getattr(self, "learningrate", 1) == 0:
            faults.append(Fault("learningrate", "0", "a number above 0"))
        return faults


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent; ``dampening`` is the momentum by default, as in Orca."""

    learningrate: float = 1e-3
    learningrate_decay: float = 0.0
    weightdecay: float = 0.0
    momentum: float = 0.0
    dampening: float | None = None
    nesterov: bool = False
    learningrate_schedule: Scheduler | None = None

    def _find_faults(self) -> list[Fault]:
        faults = super()._find_faults()
        given: Any = self.learningrate_schedule
        if given is not None and not isinstance(given, Scheduler):
            faults.append(Fault("learningrate_schedule", describe_value(given), "a schedule"))
        if not faults and self.nesterov and not (self.momentum and not self.dampening):
            faults.append(Fault("nesterov", "True", "a momentum above 0 without dampening"))
        return faults

    @property
    def schedule(self) -> Scheduler | None:
        """Schedule of the rate."""
        given = self.learningrate_schedule
        return super().schedule if given is None or isinstance(given, Default) else given

    def create(self, torch: Any, parameters: Any) -> Any:
        """Return the optimizer of parameters."""
        dampening = self.dampening
        if dampening is None:
            dampening = 0.0 if self.nesterov else self.momentum
        return torch.optim.SGD(
            parameters,
            lr=self.learningrate,
            momentum=self.momentum,
            dampening=dampening,
            weight_decay=self.weightdecay,
            nesterov=self.nesterov,
        )


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """``torch.optim.Adagrad`` with Orca's arguments."""

    learningrate: float = 1e-3
    learningrate_decay: float = 0.0
    weightdecay: float = 0.0

    def create(self, torch: Any, parameters: Any) -> Any:
        """Return the optimizer of parameters."""
        return torch.optim.Adagrad(
            parameters, lr=self.learningrate, weight_decay=self.weightdecay, eps=1e-10
        )


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """``torch.optim.Adadelta`` with the rate 1 and Orca's arguments."""

    decayrate: float = 0.9
    epsilon: float = 1e-10

    def create(self, torch: Any, parameters: Any) -> Any:
        """Return the optimizer of parameters."""
        return torch.optim.Adadelta(parameters, lr=1.0, rho=self.decayrate, eps=self.epsilon)


@dataclass(frozen=True)
class Adam(Optimizer):
    """``torch.optim.Adam`` with Orca's arguments."""

    learningrate: float = 1e-3
    learningrate_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def create(self, torch: Any, parameters: Any) -> Any:
        """Return the optimizer of parameters."""
        betas = (self.beta1, self.beta2)
        return torch.optim.Adam(parameters, lr=self.learningrate, betas=betas, eps=self.epsilon)


@dataclass(frozen=True)
class ParallelAdam(Adam):
    """The same as :class:`Adam`; ``parallel_num`` has no effect."""

    parallel_num: int = field(default=-1)


@dataclass(frozen=True)
class Adamax(Optimizer):
    """``torch.optim.Adamax`` with Orca's arguments."""

    learningrate: float = 0.002
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-38

    def create(self, torch: Any, parameters: Any) -> Any:
        """Return the optimizer of parameters."""
        betas = (self.beta1, self.beta2)
        return torch.optim.Adamax(parameters, lr=self.learningrate, betas=betas, eps=self.epsilon)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """``torch.optim.RMSprop`` with Orca's arguments."""

    learningrate: float = 1e-2
    learningrate_decay: float = 0.0
    decayrate: float = 0.99
    epsilon: float = 1e-8

    def create(self, torch: Any, parameters: Any) -> Any:
        """Return the optimizer of parameters."""
        return torch.optim.RMSprop(
            parameters, lr=self.learningrate, alpha=self.decayrate, eps=self.epsilon
        )
