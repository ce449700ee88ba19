"""Checks of the clusters that start before the programs of steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hyperplane.clusters import registry
from hyperplane.clusters.planning import create_planner
from hyperplane.core.errors import EngineUnavailable, Fault, RequestError, UnknownPool
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.cluster_arguments import (
    find_framework_faults,
    prestarted_framework,
)
from hyperplane.jobs.runners.base import Runner
from hyperplane.spec.request import ClusterArguments


def find_step_cluster_faults(runner: Runner, pipeline: Pipeline) -> Iterator[Fault]:
    """Yield faults of the clusters of steps that a runner cannot start."""
    for step in pipeline.steps:
        if not getattr(runner, "starts_clusters", False):
            faults = find_framework_faults(step, "", f"the runner {runner.name}")
            yield from _name_step(step, faults)
        elif prestarted_framework(step):
            yield from _find_plan_faults(step, pipeline.requirements is not None)


def _name_step(step: Step, faults: Iterable[Fault]) -> Iterator[Fault]:
    for fault in faults:
        yield replace(fault, where=f"step {step.name!r}: {fault.where.removeprefix('.')}")


def _find_plan_faults(step: Step, has_requirements: bool) -> Iterator[Fault]:
    """Yield the faults of a plan; a framework may be missing that the requirements install."""
    try:
        planner = create_planner(
            "initialize_cluster", ClusterArguments.from_mapping(step.cluster or {})
        )
        usable, reason = registry.load(planner.plan().engine).available()
    except RequestError as error:
        if not isinstance(error, UnknownPool):  # which pool_faults reports
            faults = [replace(each, where=f"cluster.{each.where}") for each in error.faults]
            yield from _name_step(step, faults)
        return
    except EngineUnavailable as error:
        usable, reason = False, error.message
    if not usable and not has_requirements:
        asked = repr(prestarted_framework(step))
        fault = Fault("cluster.framework", asked, "an installed framework", reason)
        yield from _name_step(step, [fault])
