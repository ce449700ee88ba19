"""Cost of steps on AWS Batch, before they are submitted."""

from __future__ import annotations

from contextlib import suppress

from hyperplane import config
from hyperplane.core.errors import UnknownPool
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.aws_batch.requests import MAX_ARRAY, task_size
from hyperplane.platforms.aws.task_sizes import (
    PRICE_DATE,
    PRICE_SOURCE,
    TaskSize,
    fargate_price,
)
from hyperplane.spec.settings import AwsBatchSettings


def estimate_cost(step: Step, settings: AwsBatchSettings, region: str | None) -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text."""
    size = task_size(step, 1.0, settings)
    where = f"step {step.name!r}"
    if size is None:
        return f"{where}: no container is large enough"
    shown = f"{size.cores:g} vCPU, {size.memory} MiB" + f", {size.gpus} GPUs" * bool(size.gpus)
    price, source = _price(step, size, settings, region)
    if not price:
        return f"{where}: {shown} in a container; cost unknown: {source}"
    chunks = step.chunk_count or 1
    count = min(chunks, step.max_parallel or chunks, MAX_ARRAY)
    text = f"{where}: {shown} in a container, {price} for an hour"
    return f"{text}, {count} at once ({source})" if count > 1 else f"{text} ({source})"


def _price(
    step: Step, size: TaskSize, settings: AwsBatchSettings, region: str | None
) -> tuple[str, str]:
    """Return the price of a container for an hour and its source; the reason if it is unknown."""
    if settings.platform == "fargate":
        price = fargate_price(region, size)
        if price is None:
            return "", f"no price of Fargate in {region or 'an unknown region'}"
        return f"{price:.4f} USD", f"price of {PRICE_DATE}, {PRICE_SOURCE}"
    pool_price = None
    with suppress(UnknownPool):
        pool_price = config.get_pool(step.resources.pool or "").price_per_hour
    if pool_price is None:
        return "", "no price of the instances of EC2; set price_per_hour of the step's pool"
    currency = config.sizing_rules().currency
    return f"{pool_price:g} {currency}", "price_per_hour of the pool, for one node"
