"""Cost of steps on Vertex AI, before they are submitted."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.container_budget import (
    ContainerCosts,
    Price,
    describe_price,
    find_pool_price,
)
from hyperplane.jobs.runners.vertex.machines import step_machine, task_size
from hyperplane.jobs.runners.vertex.requests import attempt_seconds
from hyperplane.jobs.runners.vertex.tuning import count_trials
from hyperplane.platforms.gcp.machine_types import (
    PRICE_DATE,
    PRICE_SOURCE,
    VertexMachine,
    machine_price,
)
from hyperplane.spec.settings import VertexSettings

#: Seconds from the time limit of a job until its machine is gone. Google documents no figure.
_STOP_SECONDS = 60.0


def estimate_cost(step: Step, settings: VertexSettings, at_once: int) -> str:
    """Return what a step costs while it runs, or that it is unknown, as a line of text."""
    machine = step_machine(step, 1.0, settings)
    if machine is None:
        return f"step {step.name!r}: no machine is large enough"
    chunks = step.chunk_count or 1
    count = min(chunks, step.max_parallel or at_once) * max(1, step.gang_size)
    count *= count_trials(step)[1]
    return describe_price(step, machine.describe(), find_price(step, machine, settings), count)


def find_price(step: Step, machine: VertexMachine, settings: VertexSettings) -> Price:
    """Return the price of the machine of a step, or why it is unknown."""
    price = None if settings.spot else machine_price(settings.region, machine)
    if price is not None:
        return Price(price, "USD", f"price of {PRICE_DATE}, {PRICE_SOURCE}")
    spot = " with spot" if settings.spot else ""
    region = settings.region or "an unknown region"
    return find_pool_price(step, f"no price of {machine.describe()}{spot} in {region}")


def container_costs(settings: VertexSettings) -> ContainerCosts:
    """Return the budget of the settings, with the sizes and prices of machines."""

    def price(step: Step, factor: float) -> Price:
        machine = step_machine(step, factor, settings)
        if machine is None:
            return Price(None, "", "no machine is large enough")
        return find_price(step, machine, settings)

    return ContainerCosts(
        "hyperplane.runners.vertex",
        settings.budget,
        lambda step, factor: task_size(step, factor, settings),
        price,
        attempt_seconds,
        _STOP_SECONDS,
        lambda step: count_trials(step)[0],
    )
