"""Cost of steps on Cloud Run, before they are submitted."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.cloud_run.requests import attempt_seconds, task_size
from hyperplane.jobs.runners.container_budget import ContainerCosts, Price, describe_price
from hyperplane.platforms.gcp.cloud_run_sizes import PRICE_DATE, PRICE_SOURCE, cloud_run_price
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import CloudRunSettings

#: Seconds from SIGTERM at the time limit of a container until Cloud Run kills it.
_STOP_SECONDS = 10.0


def estimate_cost(step: Step, settings: CloudRunSettings, at_once: int) -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text."""
    size = task_size(step, 1.0, settings)
    if size is None:
        return f"step {step.name!r}: no container is large enough"
    count = min(step.chunk_count or 1, step.max_parallel or at_once)
    shown = f"{size.describe()} in a container"
    return describe_price(step, shown, _find_price(size, settings), count)


def container_costs(settings: CloudRunSettings) -> ContainerCosts:
    """Return the budget of the settings, with the sizes and prices of containers."""

    def price(step: Step, factor: float) -> Price:
        size = task_size(step, factor, settings)
        if size is None:
            return Price(None, "", "no container is large enough")
        return _find_price(size, settings)

    return ContainerCosts(
        "hyperplane.runners.cloud_run",
        settings.budget,
        lambda step, factor: task_size(step, factor, settings),
        price,
        attempt_seconds,
        _STOP_SECONDS,
    )


def _find_price(size: TaskSize, settings: CloudRunSettings) -> Price:
    """Return the price of a container, or why it is unknown."""
    amount = cloud_run_price(settings.region, size)
    if amount is None:
        what = "Cloud Run with a GPU" if size.gpus else "Cloud Run"
        return Price(None, "", f"no price of {what} in {settings.region or 'an unknown region'}")
    return Price(amount, "USD", f"price of {PRICE_DATE}, {PRICE_SOURCE}")
