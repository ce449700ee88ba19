"""Cost of steps on Amazon EMR, before they are submitted."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.container_budget import ContainerCosts, Price, describe_price
from hyperplane.jobs.runners.driver_files import step_size
from hyperplane.jobs.runners.emr.requests import attempt_seconds, step_instance
from hyperplane.platforms.aws.emr_instances import PRICE_DATE, PRICE_SOURCE, instance_price
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import EmrSettings

#: Seconds for which a cluster exists before and after its step. Amazon documents no figures: most
#: clusters start within ten minutes.
_STOP_SECONDS = 1200.0


def estimate_cost(step: Step, settings: EmrSettings, region: str | None, at_once: int) -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text."""
    instance = step_instance(step, 1.0, settings)
    if settings.cluster:
        shown = f"cluster {settings.cluster}"
    elif instance is None:
        return f"step {step.name!r}: no machine is large enough"
    else:
        shown = f"a cluster of {settings.workers} {instance.name}"
    count = min(step.chunk_count or 1, step.max_parallel or at_once)
    return describe_price(step, shown, find_price(step, 1.0, settings, region), count)


def find_price(step: Step, factor: float, settings: EmrSettings, region: str | None) -> Price:
    """Return the price of the machines of a step, or why it is unknown."""
    if settings.cluster:
        return Price(None, "", "the cluster is paid for also without the step")
    instance = step_instance(step, factor, settings)
    if instance is None:
        return Price(None, "", "no machine is large enough")
    price = instance_price(region, instance.name)
    if price is None:
        where = region or "an unknown region"
        return Price(None, "", f"no price of {instance.name} with EMR in {where}")
    return Price(price * settings.workers, "USD", f"price of {PRICE_DATE}, {PRICE_SOURCE}")


def container_costs(settings: EmrSettings, region: str | None) -> ContainerCosts:
    """Return the budget of the settings, with the sizes and prices of clusters in a region."""

    def size(step: Step, factor: float) -> TaskSize | None:
        if settings.cluster:
            return step_size(step, factor, settings)
        instance = step_instance(step, factor, settings)
        if instance is None:
            return None
        return TaskSize(instance.cores * settings.workers, instance.memory)

    return ContainerCosts(
        "hyperplane.runners.emr",
        settings.budget,
        size,
        lambda step, factor: find_price(step, factor, settings, region),
        attempt_seconds,
        0.0 if settings.cluster else _STOP_SECONDS,
    )
