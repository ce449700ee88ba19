"""Cost of steps on AWS Batch, before they are submitted."""

from __future__ import annotations

from contextlib import suppress

from hyperplane import config
from hyperplane.core.errors import UnknownPool
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.aws_batch.requests import MAX_ARRAY, attempt_seconds, task_size
from hyperplane.jobs.runners.container_budget import ContainerCosts, Price
from hyperplane.platforms.aws.task_sizes import PRICE_DATE, PRICE_SOURCE, fargate_price
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import AwsBatchSettings

#: Seconds from SIGTERM at the time limit of a container until Batch kills it.
_STOP_SECONDS = 30.0


def estimate_cost(step: Step, settings: AwsBatchSettings, region: str | None) -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text."""
    size = task_size(step, 1.0, settings)
    where = f"step {step.name!r}"
    if size is None:
        return f"{where}: no container is large enough"
    shown = f"{size.cores:g} vCPU, {size.memory} MiB" + f", {size.gpus} GPUs" * bool(size.gpus)
    price = find_price(step, size, settings, region)
    if price.amount is None:
        return f"{where}: {shown} in a container; cost unknown: {price.source}"
    chunks = step.chunk_count or 1
    count = min(chunks, step.max_parallel or chunks, MAX_ARRAY)
    digits = ".4f" if settings.platform == "fargate" else "g"
    text = f"{where}: {shown} in a container, {price.amount:{digits}} {price.currency} for an hour"
    return f"{text}, {count} at once ({price.source})" if count > 1 else f"{text} ({price.source})"


def find_price(step: Step, size: TaskSize, settings: AwsBatchSettings, region: str | None) -> Price:
    """Return the price of a container of a step, or why it is unknown."""
    if settings.platform == "fargate":
        price = fargate_price(region, size)
        if price is None:
            return Price(None, "", f"no price of Fargate in {region or 'an unknown region'}")
        return Price(price, "USD", f"price of {PRICE_DATE}, {PRICE_SOURCE}")
    pool_price = None
    with suppress(UnknownPool):
        pool_price = config.get_pool(step.resources.pool or "").price_per_hour
    if pool_price is None:
        why = "no price of the instances of EC2; set price_per_hour of the step's pool"
        return Price(None, "", why)
    currency = config.sizing_rules().currency
    return Price(pool_price, currency, "price_per_hour of the pool, for one node")


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
