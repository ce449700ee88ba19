"""Private names of distributed's scheduler: the errors that tasks end with.

Schedulers without this package receive this module by value, so it imports no other module of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from distributed.protocol import pickle
from distributed.protocol.serialize import Serialize, Serialized, deserialize

logger = logging.getLogger("distributed.scheduler")

#: Key, exception as Dask stores it, its text -> the pickled exception instead of it, or None.
Translation = Callable[[Any, Any, str], bytes | None]


def translate_task_errors(scheduler: Any, translate: Translation) -> None:
    """Let a task end with the exception that `translate` returns, whatever made it fail.

    All errors pass through the transitions to the state "erred": those of functions, KilledWorker
    and NoWorkerError. A plugin learns of a transition only after the message to the client exists.
    """
    table = dict(type(scheduler)._TRANSITIONS_TABLE)
    for (start, finish), handle in table.items():
        if finish == "erred":
            table[start, finish] = _translate_before(handle, translate)
    scheduler._TRANSITIONS_TABLE = table


def _translate_before(handle: Callable[..., Any], translate: Translation) -> Callable[..., Any]:
    def handle_translated(scheduler: Any, key: Any, stimulus_id: str, **kwargs: Any) -> Any:
        exception = kwargs.get("exception")
        if exception is not None:
            other = None
            try:
                other = translate(key, exception, kwargs.get("exception_text") or "")
            except Exception:
                logger.exception("the error of task %s is kept", key)
            if other is not None:
                kwargs["exception"] = other
        return handle(scheduler, key, stimulus_id, **kwargs)

    return handle_translated


def load_scheduler_error(exception: Any) -> BaseException | None:
    """Return the exception of a task that the scheduler itself created; None for a worker's.

    The scheduler pickles its own exceptions to bytes; those of workers are not loaded, because
    their classes may be missing here.
    """
    if not isinstance(exception, bytes):
        return None
    loaded = pickle.loads(exception)
    return loaded if isinstance(loaded, BaseException) else None


def copy_error(exception: Any) -> bytes | None:
    """Return the pickled exception of a task without loading it; None if that is not possible."""
    if isinstance(exception, bytes):
        return exception
    if isinstance(exception, Serialize):  # of a worker in this process
        exception = exception.data
    elif isinstance(exception, Serialized):
        exception = deserialize(exception.header, exception.frames)
    return exception if isinstance(exception, bytes) else None


def find_start(scheduler: Any, key: Any) -> float | None:
    """Return the time when the scheduler received the computation of a task; None if unknown."""
    task = scheduler.tasks.get(key)
    found = [each.start for each in scheduler.computations if task and task.group in each.groups]
    return max(found, default=None)


def find_shuffle_workers(scheduler: Any, shuffle: str) -> set[str]:
    """Return the addresses of the workers of all runs of a peer-to-peer shuffle."""
    plugin = scheduler.extensions.get("shuffle")
    runs = plugin._shuffles.get(shuffle, ()) if plugin is not None else ()
    return {worker for run in runs for worker in run.participating_workers}


def fail_task(scheduler: Any, key: Any, exception: bytes, text: str) -> bool:
    """End a task with an exception in any state but "memory"; return whether it was ended."""
    task = scheduler.tasks.get(key)
    if task is None or task.state in ("memory", "erred", "forgotten"):
        return False
    given = {"cause": key, "exception": exception, "exception_text": text}
    stimulus = "hyperplane-fail-task"
    if task.state == "processing":
        given["worker"] = task.processing_on.address
    if task.state in ("processing", "queued", "no-worker"):
        scheduler.transitions(scheduler.transition(key, "erred", stimulus, **given), stimulus)
    else:  # by way of "released", which takes no arguments and would plan the task again
        task.exception, task.exception_text, task.exception_blame = exception, text, task
        scheduler.transitions({key: "erred"}, stimulus)
    return True


def find_waiting(scheduler: Any, worker: str) -> dict[Any, str]:
    """Return the prefixes by key of tasks that wait for this worker, or for any worker."""
    tasks = [*find_tasks(scheduler, worker).values(), *scheduler.queued, *scheduler.unrunnable]
    return {task.key: task.prefix.name for task in tasks}


def estimate_results(scheduler: Any) -> int:
    """Return the bytes of results on each worker when all known tasks are complete."""
    total = 0.0
    for group in scheduler.task_groups.values():
        states = group.states
        complete = states["memory"] + states["released"] + states["forgotten"]
        if complete:
            count = sum(states.values()) - states["forgotten"] - states["erred"]
            total += group.nbytes_total / complete * count
    return int(total / max(1, len(scheduler.workers)))


def find_tasks(scheduler: Any, worker: str) -> Mapping[Any, Any]:
    """Return the tasks by key that a worker of the scheduler was given and has not completed."""
    state = scheduler.workers.get(worker)
    return {} if state is None else {task.key: task for task in state.processing}
