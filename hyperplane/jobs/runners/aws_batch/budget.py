"""Comparison of the largest cost of a job with its budget, before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hyperplane.core.errors import Fault
from hyperplane.core.units import format_number, plural
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.retries import count_retries
from hyperplane.jobs.runners.aws_batch.cost import Price, find_price
from hyperplane.jobs.runners.aws_batch.requests import attempt_seconds, task_size
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.aws.task_sizes import TaskSize
from hyperplane.spec.budget import Budget, read_budget
from hyperplane.spec.settings import AwsBatchSettings

_BUDGET = "hyperplane.runners.aws_batch.budget"
#: Seconds from SIGTERM at the time limit of a container until Batch kills it.
_STOP_SECONDS = 30.0


class StepCost(NamedTuple):
    """The most that a step may take: hours of all its containers, and their cost or core-hours."""

    step: str
    containers: int
    hours: float
    amount: float
    source: str


def find_budget_faults(job: Job, settings: AwsBatchSettings, region: str | None) -> list[Fault]:
    """Return the faults of a job that may cost more than its budget, or whose cost has no bound."""
    budget = read_budget(settings.budget)
    if budget is None:
        return []
    faults: list[Fault] = []
    costs = list(_find_costs(job, budget, settings, region, faults))
    total = sum(cost.amount for cost in costs)
    if not faults and total > budget.amount:
        unit = budget.currency or "core-hours"
        parts = "; ".join(
            f"step {cost.step!r}: {plural(cost.containers, 'container')}, {cost.hours:.3g} hours, "
            f"{cost.amount:.3g} {unit} ({cost.source})"
            for cost in sorted(costs, key=lambda cost: -cost.amount)[:5]
        )
        allowed = f"at least {total:.4g} {unit}, the most that the job may take: {parts}"
        advice = "lower timeout, retries, chunks or resources of the steps, or raise the budget"
        faults.append(Fault(_BUDGET, str(budget), allowed, advice))
    return faults


def _find_costs(
    job: Job, budget: Budget, settings: AwsBatchSettings, region: str | None, faults: list[Fault]
) -> Iterator[StepCost]:
    for step in job.pipeline.steps:
        where = f"step {step.name!r}"
        hours = _most_hours(step, job)
        size = _largest_size(step, job, settings)
        if hours is None:
            allowed = f"a time limit, without which the job may exceed the budget of {budget}"
            advice = "set timeout of the step, or the timeout of the job"
            faults.append(Fault(f"{where}: timeout", "nothing", allowed, advice))
        if size is None:  # a step without a container is refused as such
            continue
        price = Price(size.cores, "", f"{format_number(size.cores)} vCPU each")
        if budget.currency:
            price = find_price(step, size, settings, region)
        if price.amount is None:
            allowed = f"a known price, to compare with the budget of {budget}"
            advice = f"{price.source}; or give the budget in core-hours"
            faults.append(Fault(f"{where}: cost", "unknown", allowed, advice))
        elif price.currency != budget.currency:
            allowed = f"an amount in {price.currency}, the currency of the price of {where}"
            faults.append(Fault(_BUDGET, str(budget), allowed))
        elif hours is not None:
            containers = step.chunk_count or 1
            yield StepCost(step.name, containers, hours, hours * price.amount, price.source)


def _most_hours(step: Step, job: Job) -> float | None:
    """Return the most hours of all containers of a step together; None without a time limit."""
    containers = step.chunk_count or 1
    attempts = count_retries(step, job.max_retries) + 1
    bounds = []
    if step.timeout is not None:
        bounds.append(containers * attempts * (attempt_seconds(step.timeout) + _STOP_SECONDS))
    for limit in (job.timeout, job.active_timeout):
        if limit > 0:
            bounds.append(
                min(containers, step.max_parallel or containers) * (limit + _STOP_SECONDS)
            )
    return min(bounds) / 3600 if bounds else None


def _largest_size(step: Step, job: Job, settings: AwsBatchSettings) -> TaskSize | None:
    """Return the size of the last container after all retries for lack of memory."""
    for retry in range(count_retries(step, job.max_retries), -1, -1):
        factor = (step.more_memory or 1.0) ** retry
        if (size := task_size(step, factor, settings)) is not None:
            return size
    return None
