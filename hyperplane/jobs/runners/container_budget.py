"""Comparison of the largest cost of a job in containers with its budget, before its submission."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from hyperplane import config
from hyperplane.core.errors import Fault, UnknownPool
from hyperplane.core.units import format_number, plural
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.retries import count_retries
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.budget import Budget, read_budget


class Price(NamedTuple):
    """Price of a container for an hour.

    ``amount`` is None if it is unknown; ``source`` is then the reason.
    """

    amount: float | None
    currency: str
    source: str


class ContainerCosts(NamedTuple):
    """Budget of a runner, and sizes and prices of its containers.

    Parameters
    ----------
    section : str
        Section of the runner's settings.
    budget : str or None
        Its setting ``budget``.
    size : callable
        Takes a step and the factor of its memory, and returns the size of its container; None if
        none is large enough.
    price : callable
        Takes the same, and returns the price of a container.
    attempt_seconds : callable
        Takes the timeout of a step, and returns the seconds after which the service ends an
        attempt.
    stop_seconds : float
        Seconds from the end of a container's time limit until the service kills it.
    trials : callable
        Takes a step, and returns how often its containers run in one attempt.
    """

    section: str
    budget: str | None
    size: Callable[[Step, float], TaskSize | None]
    price: Callable[[Step, float], Price]
    attempt_seconds: Callable[[float], float]
    stop_seconds: float
    trials: Callable[[Step], int] = lambda step: 1


def find_pool_price(step: Step, why_unknown: str) -> Price:
    """Return ``price_per_hour`` of the pool of a step, or that it is unknown for a reason."""
    amount = None
    with suppress(UnknownPool):
        amount = config.get_pool(step.resources.pool or "").price_per_hour
    if amount is None:
        return Price(None, "", f"{why_unknown}; set price_per_hour of the step's pool")
    currency = config.sizing_rules().currency
    return Price(amount, currency, "price_per_hour of the pool, for one node")


def describe_price(step: Step, shown: str, price: Price, at_once: int, digits: str = ".4f") -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text.

    ``shown`` is what it runs on, and ``at_once`` the number of its containers that run at once.
    """
    where = f"step {step.name!r}: {shown}"
    if price.amount is None:
        return f"{where}; cost unknown: {price.source}"
    text = f"{where}, {price.amount:{digits}} {price.currency} for an hour"
    several = f", {at_once} at once" * (at_once > 1)
    return f"{text}{several} ({price.source})"


class StepCost(NamedTuple):
    """The most that a step may take: hours of all its containers, and their cost or core-hours."""

    step: str
    containers: int
    hours: float
    amount: float
    source: str


def find_budget_faults(job: Job, costs: ContainerCosts) -> list[Fault]:
    """Return the faults of a job that may cost more than its budget, or whose cost has no bound."""
    budget = read_budget(costs.budget)
    if budget is None:
        return []
    faults: list[Fault] = []
    steps = list(_find_costs(job, budget, costs, faults))
    total = sum(cost.amount for cost in steps)
    if not faults and total > budget.amount:
        unit = budget.currency or "core-hours"
        parts = "; ".join(
            f"step {cost.step!r}: {plural(cost.containers, 'container')}, {cost.hours:.3g} hours, "
            f"{cost.amount:.3g} {unit} ({cost.source})"
            for cost in sorted(steps, key=lambda cost: -cost.amount)[:5]
        )
        allowed = f"at least {total:.4g} {unit}, the most that the job may take: {parts}"
        advice = "lower timeout, retries, chunks or resources of the steps, or raise the budget"
        faults.append(Fault(f"{costs.section}.budget", str(budget), allowed, advice))
    return faults


def _find_costs(
    job: Job, budget: Budget, costs: ContainerCosts, faults: list[Fault]
) -> Iterator[StepCost]:
    for step in job.pipeline.steps:
        where = f"step {step.name!r}"
        hours = _most_hours(step, job, costs)
        factor = _largest_factor(step, job, costs)
        if hours is None:
            allowed = f"a time limit, without which the job may exceed the budget of {budget}"
            advice = "set timeout of the step, or the timeout of the job"
            faults.append(Fault(f"{where}: timeout", "nothing", allowed, advice))
        size = None if factor is None else costs.size(step, factor)
        if factor is None or size is None:  # a step without a container is refused as such
            continue
        price = Price(size.cores, "", f"{format_number(size.cores)} vCPU each")
        if budget.currency:
            price = costs.price(step, factor)
        if price.amount is None:
            allowed = f"a known price, to compare with the budget of {budget}"
            advice = f"{price.source}; or give the budget in core-hours"
            faults.append(Fault(f"{where}: cost", "unknown", allowed, advice))
        elif price.currency != budget.currency:
            allowed = f"an amount in {price.currency}, the currency of the price of {where}"
            faults.append(Fault(f"{costs.section}.budget", str(budget), allowed))
        elif hours is not None:
            containers = _count_containers(step) * costs.trials(step)
            yield StepCost(step.name, containers, hours, hours * price.amount, price.source)


def _most_hours(step: Step, job: Job, costs: ContainerCosts) -> float | None:
    """Return the most hours of all containers of a step together; None without a time limit."""
    containers = _count_containers(step) * costs.trials(step)
    attempts = count_retries(step, job.max_retries) + 1
    bounds = []
    if step.timeout is not None:
        seconds = costs.attempt_seconds(step.timeout) + costs.stop_seconds
        bounds.append(containers * attempts * seconds)
    for limit in (job.timeout, job.active_timeout):
        if limit > 0:
            together = containers
            if step.max_parallel is not None:
                together = min(containers, step.max_parallel * max(1, step.gang_size))
            bounds.append(together * (limit + costs.stop_seconds))
    return min(bounds) / 3600 if bounds else None


def _count_containers(step: Step) -> int:
    return (step.chunk_count or 1) * max(1, step.gang_size)


def _largest_factor(step: Step, job: Job, costs: ContainerCosts) -> float | None:
    """Return the factor of the memory of the last container after all retries for lack of it."""
    for retry in range(count_retries(step, job.max_retries), -1, -1):
        factor = (step.more_memory or 1.0) ** retry
        if costs.size(step, factor) is not None:
            return float(factor)
    return None
