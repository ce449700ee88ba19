"""Cost of steps on AWS Batch, before they are submitted."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.aws_batch.requests import MAX_ARRAY, attempt_seconds, task_size
from hyperplane.jobs.runners.container_budget import (
    ContainerCosts,
    Price,
    describe_price,
    find_pool_price,
)
from hyperplane.platforms.aws.task_sizes import PRICE_DATE, PRICE_SOURCE, fargate_price
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import AwsBatchSettings

#: Seconds from SIGTERM at the time limit of a container until Batch kills it.
_STOP_SECONDS = 30.0


def estimate_cost(step: Step, settings: AwsBatchSettings, region: str | None) -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text."""
    size = task_size(step, 1.0, settings)
    if size is None:
        return f"step {step.name!r}: no container is large enough"
    chunks = step.chunk_count or 1
    count = min(chunks, step.max_parallel or chunks, MAX_ARRAY)
    digits = ".4f" if settings.platform == "fargate" else "g"
    price = find_price(step, size, settings, region)
    return describe_price(step, f"{size.describe()} in a container", price, count, digits)


def find_price(step: Step, size: TaskSize, settings: AwsBatchSettings, region: str | None) -> Price:
    """Return the price of a container of a step, or why it is unknown."""
    if settings.platform == "fargate":
        price = fargate_price(region, size)
        if price is None:
            return Price(None, "", f"no price of Fargate in {region or 'an unknown region'}")
        return Price(price, "USD", f"price of {PRICE_DATE}, {PRICE_SOURCE}")
    return find_pool_price(step, "no price of the instances of EC2")


def container_costs(settings: AwsBatchSettings, region: str | None) -> ContainerCosts:
    """Return the budget of the settings, with the sizes and prices of containers in a region."""

    def price(step: Step, factor: float) -> Price:
        size = task_size(step, factor, settings)
        if size is None:
            return Price(None, "", "no container is large enough")
        return find_price(step, size, settings, region)

    return ContainerCosts(
        "hyperplane.runners.aws_batch",
        settings.budget,
        lambda step, factor: task_size(step, factor, settings),
        price,
        attempt_seconds,
        _STOP_SECONDS,
    )
