"""Cost of steps on AWS Glue, before they are submitted."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.container_budget import ContainerCosts, Price, describe_price
from hyperplane.jobs.runners.glue.requests import attempt_minutes, count_workers, step_worker
from hyperplane.platforms.aws.glue_workers import (
    PRICE_DATE,
    PRICE_SOURCE,
    PYTHON_SHELL,
    GlueWorker,
    dpu_price,
)
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import GlueSettings

#: Seconds from the time limit of a run until its machines are gone. Amazon documents no figure.
_STOP_SECONDS = 60.0


def estimate_cost(step: Step, settings: GlueSettings, region: str | None, at_once: int) -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text."""
    worker = step_worker(step, 1.0, settings)
    if worker is None:
        return f"step {step.name!r}: no machine is large enough"
    shown = worker.name
    if settings.job_type != PYTHON_SHELL:
        shown = f"{settings.workers} workers {worker.name}"
    count = min(step.chunk_count or 1, step.max_parallel or at_once)
    return describe_price(step, shown, find_price(worker, settings, region), count)


def find_price(worker: GlueWorker, settings: GlueSettings, region: str | None) -> Price:
    """Return the price of the machines of a job, or why it is unknown."""
    price = dpu_price(region)
    if price is None:
        return Price(None, "", f"no price of AWS Glue in {region or 'an unknown region'}")
    amount = price * worker.dpus * count_workers(settings)
    return Price(amount, "USD", f"price of {PRICE_DATE}, {PRICE_SOURCE}")


def container_costs(settings: GlueSettings, region: str | None) -> ContainerCosts:
    """Return the budget of the settings, with the sizes and prices of jobs in a region."""

    def size(step: Step, factor: float) -> TaskSize | None:
        worker = step_worker(step, factor, settings)
        if worker is None:
            return None
        return TaskSize(worker.cores * count_workers(settings), worker.memory)

    def price(step: Step, factor: float) -> Price:
        worker = step_worker(step, factor, settings)
        if worker is None:
            return Price(None, "", "no machine is large enough")
        return find_price(worker, settings, region)

    return ContainerCosts(
        "hyperplane.runners.glue",
        settings.budget,
        size,
        price,
        lambda timeout: attempt_minutes(timeout) * 60,
        _STOP_SECONDS,
    )
