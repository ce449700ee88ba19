"""Checks of the clusters that start before the programs of steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hyperplane import config
from hyperplane.clusters import registry
from hyperplane.clusters.engine import Feature
from hyperplane.clusters.gpu_requests import find_division_fault
from hyperplane.clusters.planning import create_planner
from hyperplane.core.errors import EngineUnavailable, Fault, RequestError, UnknownPool
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.cluster_arguments import (
    find_framework_faults,
    find_gang_cluster_faults,
    prestarted_framework,
)
from hyperplane.jobs.runners.base import Runner
from hyperplane.spec.engine_names import framework_of
from hyperplane.spec.request import ClusterArguments


def find_step_cluster_faults(runner: Runner, pipeline: Pipeline) -> Iterator[Fault]:
    """Yield faults of the clusters of steps that a runner cannot start."""
    for step in pipeline.steps:
        name = f"the runner {runner.name}"
        if not getattr(runner, "starts_clusters", False):
            yield from _name_step(step, find_framework_faults(step, "", name))
        elif not prestarted_framework(step):
            continue
        elif getattr(runner, "uses_this_machine", False):
            yield from _find_plan_faults(step, pipeline.requirements is not None)
        else:
            yield from _name_step(step, find_gang_cluster_faults(step, "", name))
            yield from _name_step(step, find_engine_faults(step))


def _name_step(step: Step, faults: Iterable[Fault]) -> Iterator[Fault]:
    for fault in faults:
        yield replace(fault, where=f"step {step.name!r}: {fault.where.removeprefix('.')}")


def find_engine_faults(step: Step) -> list[Fault]:
    """Return faults of framework and engine; the machine of the cluster is not known yet."""
    framework = prestarted_framework(step)
    if not framework:
        return []
    request = create_planner(
        "initialize_cluster", ClusterArguments.from_mapping(step.cluster or {})
    ).request
    try:
        registry.FRAMEWORKS.load(framework)
        name = registry.name_engine(framework, request.engine)
        engines = [
            registry.load(each)
            for each in registry.ENGINES.names()
            if (framework_of(each) == framework if name == "auto" else each == name)
        ]
        if name != "auto":
            settings = config.engine_settings(name, engines[0].settings)
            settings.with_options(request.engine_options or {})
    except RequestError as error:
        return _name_cluster(error.faults)
    faults = []
    if all(getattr(engine, "only_renders", False) for engine in engines):
        asked, reason = repr(name), engines[0].available().reason
        faults.append(Fault("engine", asked, "an engine that starts clusters", reason))
    if request.ngpus and all(Feature.GPUS in engine.unsupported for engine in engines):
        allowed = f"0: engines of {framework} have no {Feature.GPUS.value}"
        faults.append(Fault("ngpus", str(request.ngpus), allowed))
    elif request.ngpus:
        faults += find_division_fault(request)
    return _name_cluster(faults)


def _name_cluster(faults: Iterable[Fault]) -> list[Fault]:
    """Return faults that name the argument of the step; keys of the configuration are kept."""
    return [
        each
        if each.where.startswith("hyperplane.")
        else replace(each, where=f"cluster.{each.where}")
        for each in faults
    ]


def _find_plan_faults(step: Step, has_requirements: bool) -> Iterator[Fault]:
    """Yield the faults of a plan; a framework may be missing that the requirements install."""
    try:
        planner = create_planner(
            "initialize_cluster", ClusterArguments.from_mapping(step.cluster or {})
        )
        usable, reason = registry.load(planner.plan().engine).available()
    except RequestError as error:
        if not isinstance(error, UnknownPool):  # which pool_faults reports
            yield from _name_step(step, _name_cluster(error.faults))
        return
    except EngineUnavailable as error:
        usable, reason = False, error.message
    if not usable and not has_requirements:
        asked = repr(prestarted_framework(step))
        fault = Fault("cluster.framework", asked, "an installed framework", reason)
        yield from _name_step(step, [fault])
