"""End tasks with an error from the scheduler, for all clients that wait for them.

Remote schedulers receive this module pickled by value, so it imports no other module of this
package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import cloudpickle

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

#: Name of the plugin MemoryExplainer.
_EXPLAINER = "hyperplane-memory-explainer"
#: States of tasks that do not wait for another task. Dask ends those that wait with these.
_RUNNABLE = ("processing", "queued", "no-worker")


def build_error(name: str, message: str, attributes: Mapping[str, Any]) -> Exception:
    """Return an error of ``hyperplane.errors``, or a RuntimeError in a process without it."""
    try:
        from hyperplane.core import errors

        kind: type[Exception] = getattr(errors, name)
    except (ImportError, AttributeError):
        return RuntimeError(message)
    return kind(message, **attributes)


class ErrorRecipe:
    """Pickles as an error of ``hyperplane.errors``, in schedulers without this package, too.

    Parameters
    ----------
    name : str
        Name of the class of the error.
    message : str
        Its text.
    **attributes
        Other arguments of the class.
    """

    def __init__(self, name: str, message: str, **attributes: Any) -> None:
        self.name, self.message, self.attributes = name, message, attributes

    def __reduce__(self) -> tuple[Any, ...]:
        return build_error, (self.name, self.message, self.attributes)

    def pickle(self) -> bytes:
        """Return the pickled error; its function is pickled by value."""
        module = sys.modules.get(__name__)
        if module is not None:  # None in a scheduler that received this module by value
            try:
                from hyperplane.core.by_value import pickled_by_value
            except ImportError:  # without this package nothing else pickles by value
                cloudpickle.register_pickle_by_value(module)
            else:
                with pickled_by_value(module):
                    return cast(bytes, cloudpickle.dumps(self))
        return cast(bytes, cloudpickle.dumps(self))


def list_unfinished(scheduler: Scheduler) -> list[TaskState]:
    """Return the unfinished tasks that wait for no other task."""
    processing = [task for worker in scheduler.workers.values() for task in worker.processing]
    return [*processing, *scheduler.queued, *scheduler.unrunnable]


def explain_memory(
    scheduler: Scheduler, task: TaskState, since: float, workers: Container[str], detail: str
) -> bytes | None:
    """Return the error of a task if memory was the reason why workers have ended, or None.

    The reports of these workers after the time ``since`` are those of ``MemoryExplainer``.
    """
    explainer: Any = scheduler.plugins.get(_EXPLAINER)
    if explainer is None:
        return None
    reports = tuple(
        report for report in explainer.reports if report.time >= since and report.worker in workers
    )
    if not reports:
        return None
    cause = reports[-1].cause
    error: bytes | None = explainer.create_error(task.key, task.prefix.name, cause, detail, reports)
    return error


def find_reported(
    scheduler: Scheduler, tasks: Iterable[TaskState], workers: Container[str]
) -> TaskState | None:
    """Return the task that ran in the largest process of these that memory has ended, or None."""
    explainer: Any = scheduler.plugins.get(_EXPLAINER)
    if explainer is None:
        return None
    task: TaskState | None = explainer.find_reported(tasks, workers)
    return task


def explain_pause(scheduler: Scheduler, task: TaskState) -> bytes | None:
    """Return the error of a task that waits for paused workers, by ``MemoryExplainer``, or None."""
    explainer: Any = scheduler.plugins.get(_EXPLAINER)
    if explainer is None:
        return None
    error: bytes | None = explainer.explain_pause(task.key, task.prefix.name)
    return error


def fail_tasks(
    scheduler: Scheduler,
    tasks: Iterable[TaskState],
    error: ErrorRecipe,
    stimulus: str,
    explain: Callable[[TaskState], bytes | None] = lambda task: None,
) -> list[str]:
    """End unfinished tasks, and those that need their results; return the keys as text.

    Must be called on the event loop of the scheduler. ``explain`` returns the pickled error of one
    task, or None for ``error``.
    """
    pickled = error.pickle()
    recommendations: dict[Any, Any] = {}
    failed = []
    for task in list(tasks):
        if scheduler.tasks.get(task.key) is not task or task.state not in _RUNNABLE:
            continue
        if task.processing_on is not None and task.processing_on.address in scheduler.workers:
            # Otherwise a paused worker would run the task when it resumes.
            message = {"op": "free-keys", "keys": [task.key], "stimulus_id": stimulus}
            scheduler.worker_send(task.processing_on.address, message)
        recommendations.update(
            scheduler.transition(
                task.key,
                "erred",
                exception=explain(task) or pickled,
                exception_text=f"{error.name}: {error.message}",
                cause=task.key,
                stimulus_id=stimulus,
            )
        )
        failed.append(str(task.key))
    scheduler.transitions(recommendations, stimulus_id=stimulus)
    return failed
