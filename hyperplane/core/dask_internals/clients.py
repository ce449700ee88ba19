"""Private names of distributed's clients, clusters, scheduler and workers; loads distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distributed.client import _current_client as current_client
from distributed.client import _del_global_client
from distributed.client import _global_clients as global_clients
from distributed.deploy.adaptive import Adaptive

__all__ = [
    "current_client",
    "find_adaptive_class",
    "find_default_clients",
    "forget_default_client",
    "forget_failed_connection",
    "get_adaptive",
    "get_versions",
    "global_clients",
    "is_task_wanted",
    "remove_events",
    "run_on_workers",
]


def forget_failed_connection(client: Any) -> None:
    """Let a client close after its connection has failed with an error that Dask does not expect.

    Dask has logged the error, and would raise it again when the client closes. Tornado raises a
    ValueError if a scheduler that ends closes a new TLS connection at once.
    """
    task = client._handle_report_task
    if task is not None and task.done() and not task.cancelled() and task.exception() is not None:
        client._handle_report_task = None


def find_default_clients(cluster: Any) -> list[Any]:
    """Return the clients of a cluster that are or were Dask's default client, newest first."""
    return [each for each in reversed(list(global_clients.values())) if each.cluster is cluster]


def forget_default_client(client: Any) -> None:
    """Let a client that cannot close be Dask's default client no more, as its close would."""
    _del_global_client(client)
    if not global_clients and hasattr(client, "_set_config"):
        with client._set_config:  # at its end it restores the settings from before the client
            pass
        del client._set_config


def get_adaptive(cluster: Any) -> Any | None:
    """Return the Adaptive object of a cluster that ``adapt`` scales; None otherwise."""
    adaptive = getattr(cluster, "_adaptive", None)
    return adaptive if getattr(adaptive, "periodic_callback", None) is not None else None


def find_adaptive_class(cluster: Any) -> type[Adaptive]:
    """Return the class with which a cluster adapts, or adapted last; Dask's if it never did.

    ``adapt`` passes the options of the call before to the new object, which only this class knows.
    """
    adaptive = getattr(cluster, "_adaptive", None)
    return Adaptive if adaptive is None else type(adaptive)


def get_versions(client: Any, seconds: float) -> dict[str, Any]:
    """Return ``Client.get_versions``, which has no limit for the answers.

    Raises
    ------
    TimeoutError
        If the scheduler, or a worker that it asks, has not answered within ``seconds``.
    """
    versions: dict[str, Any] = client.sync(client._get_versions, callback_timeout=seconds)
    return versions


def run_on_workers(
    client: Any, function: Callable[..., Any], *args: Any, workers: Sequence[str], seconds: float
) -> dict[str, Any]:
    """Run a function on workers; return the results of those without errors.

    Raises
    ------
    TimeoutError
        If a worker has not answered within ``seconds``; ``Client.run`` has no limit.
    """
    results: dict[str, Any] = client.sync(
        client._run,
        function,
        *args,
        workers=list(workers),
        on_error="ignore",
        callback_timeout=seconds,
    )
    return results


def remove_events(scheduler: Any, topic: str) -> None:
    """Remove the events of a topic from a scheduler, which would keep them until it ends."""
    scheduler._broker._topics.pop(topic, None)


def is_task_wanted(worker: Any, key: Any) -> bool:
    """Return whether the scheduler still wants a task that its worker executes.

    False after the task is cancelled, or its client has disconnected. May be called in any thread.
    """
    task = worker.state.tasks.get(key)
    return task is not None and task.state in ("executing", "long-running")
