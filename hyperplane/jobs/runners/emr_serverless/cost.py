"""Cost of steps on EMR Serverless, before they are submitted."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.container_budget import ContainerCosts, Price, describe_price
from hyperplane.jobs.runners.emr_serverless.requests import attempt_minutes, step_worker
from hyperplane.platforms.aws.emr_serverless_sizes import PRICE_DATE, PRICE_SOURCE, worker_price
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import EmrServerlessSettings

#: Seconds from the time limit of a run until its workers are gone. Amazon documents no figure.
_STOP_SECONDS = 120.0


def estimate_cost(
    step: Step, settings: EmrServerlessSettings, region: str | None, at_once: int
) -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text."""
    worker = step_worker(step, 1.0, settings)
    if worker is None:
        return f"step {step.name!r}: no worker is large enough"
    shown = f"{settings.workers} workers with {worker.describe()}"
    count = min(step.chunk_count or 1, step.max_parallel or at_once)
    return describe_price(step, shown, find_price(worker, settings, region), count)


def find_price(worker: TaskSize, settings: EmrServerlessSettings, region: str | None) -> Price:
    """Return the price of the workers of a run, or why it is unknown."""
    price = worker_price(region, worker)
    if price is None:
        return Price(None, "", f"no price of EMR Serverless in {region or 'an unknown region'}")
    return Price(price * settings.workers, "USD", f"price of {PRICE_DATE}, {PRICE_SOURCE}")


def container_costs(settings: EmrServerlessSettings, region: str | None) -> ContainerCosts:
    """Return the budget of the settings, with the sizes and prices of runs in a region."""

    def size(step: Step, factor: float) -> TaskSize | None:
        worker = step_worker(step, factor, settings)
        if worker is None:
            return None
        return TaskSize(worker.cores * settings.workers, worker.memory)

    def price(step: Step, factor: float) -> Price:
        worker = step_worker(step, factor, settings)
        if worker is None:
            return Price(None, "", "no worker is large enough")
        return find_price(worker, settings, region)

    return ContainerCosts(
        "hyperplane.runners.emr_serverless",
        settings.budget,
        size,
        price,
        lambda timeout: attempt_minutes(timeout) * 60,
        _STOP_SECONDS,
    )
