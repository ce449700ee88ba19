"""Plugins of schedulers, nannies and workers: explanations of failures, and workarounds for Dask.

They are for any cluster of Dask. They are pickled by value, so that schedulers, nannies and workers
do not need this package.
"""

from __future__ import annotations

from typing import Any

import cloudpickle
from distributed import Client, Scheduler

from hyperplane.core.by_value import find_own_imports, pickled_by_value
from hyperplane.core.dask_internals import actor_answers, list_messages, span_limit
from hyperplane.core.dask_internals.actor_answers import ActorAnswers
from hyperplane.core.dask_internals.list_messages import ListMessages
from hyperplane.core.dask_internals.span_limit import SpanCounterLimit, SpanLimit
from hyperplane.guard import (
    memory_explainer,
    memory_recorder,
    memory_reporter,
    process_usage,
    restarted_workers,
    worker_folders,
)
from hyperplane.guard.memory_advice import WorkerLayout
from hyperplane.guard.memory_explainer import MemoryExplainer
from hyperplane.guard.memory_recorder import MemoryRecorder
from hyperplane.guard.memory_reporter import MemoryReporter
from hyperplane.guard.process_usage import ProcessUsage
from hyperplane.guard.restarted_workers import RestartedWorkers
from hyperplane.guard.worker_folders import ShuffleFolders, WorkerFolders
from hyperplane.guard.worker_out_of_memory import pickle_loader

#: Modules whose classes are pickled by value.
MODULES = find_own_imports(
    actor_answers,
    list_messages,
    memory_explainer,
    memory_recorder,
    memory_reporter,
    process_usage,
    restarted_workers,
    span_limit,
    worker_folders,
)


def create_explainer(layout: WorkerLayout) -> MemoryExplainer:
    """Return the plugin of the scheduler."""
    return MemoryExplainer(pickle_loader(), layout)


def pickle_plugin(plugin: Any, by_value: bool = True) -> bytes:
    """Pickle a plugin, with its code if that is not by reference."""
    with pickled_by_value(*(MODULES if by_value else ())):
        pickled: bytes = cloudpickle.dumps(plugin)
    return pickled


async def install(scheduler: Scheduler, layout: WorkerLayout, by_value: bool) -> None:
    """Add the plugins to a scheduler in this process, and to its nannies and workers.

    By reference if nannies are in this process: cloudpickle replaces the methods of a class that
    is pickled by value and loaded in the same process.
    """
    scheduler_plugins: tuple[Any, ...]
    scheduler_plugins = (create_explainer(layout), SpanLimit(), RestartedWorkers())
    for scheduler_plugin in scheduler_plugins:
        scheduler.add_plugin(scheduler_plugin)
        await scheduler_plugin.start(scheduler)
    for plugin, register in (
        (MemoryReporter(), scheduler.register_nanny_plugin),
        (WorkerFolders(), scheduler.register_nanny_plugin),
        (MemoryRecorder(), scheduler.register_worker_plugin),
        (ProcessUsage(), scheduler.register_worker_plugin),
        (ShuffleFolders(), scheduler.register_worker_plugin),
        (SpanCounterLimit(), scheduler.register_worker_plugin),
        (ActorAnswers(), scheduler.register_worker_plugin),
        (ListMessages(), scheduler.register_worker_plugin),
    ):
        await register(None, pickle_plugin(plugin, by_value), plugin.name, idempotent=False)


def register(client: Client, layout: WorkerLayout) -> None:
    """Add the plugins to the cluster of a client."""
    with pickled_by_value(*MODULES):
        plugins = (
            create_explainer(layout),
            MemoryReporter(),
            WorkerFolders(),
            MemoryRecorder(),
            ProcessUsage(),
            ShuffleFolders(),
            SpanCounterLimit(),
            ActorAnswers(),
            ListMessages(),
            SpanLimit(),
            RestartedWorkers(),
        )
        for plugin in plugins:
            client.register_plugin(plugin)
