"""Actors that are lost with a worker process which memory has ended.

Dask raises ``OSError: Unable to contact Actor's worker`` from the calls that wait, and later
``RuntimeError: Worker holding Actor was lost`` from new ones, without the reason. Clients of this
package add it to the OSError.
Schedulers without this package receive this module by value.
"""

from __future__ import annotations

from typing import Any

from hyperplane.guard.memory_advice import MemoryFailure, WorkerLayout, advise, describe_end
from hyperplane.guard.memory_report import MemoryReport


class ActorWorkers:
    """The actors of a scheduler, and their workers."""

    def __init__(self) -> None:
        self._workers: dict[Any, str] = {}

    def add(self, key: Any, worker: str) -> None:
        """Add an actor that a worker has created."""
        self._workers[key] = worker

    def remove(self, key: Any) -> None:
        """Remove an actor that no client holds any more; other keys have no effect."""
        self._workers.pop(key, None)

    def take_lost(self, worker: str) -> list[Any]:
        """Remove the actors of a worker that has ended, and return their keys."""
        lost = [key for key, address in self._workers.items() if address == worker]
        for key in lost:
            del self._workers[key]
        return sorted(lost, key=str)


def explain_lost_actors(actors: list[Any], report: MemoryReport, layout: WorkerLayout) -> str:
    """Return why actors were lost with the process of a report, and a change that helps."""
    failure = MemoryFailure(str(actors[0]), "", report.cause, (report,))
    return (
        f"{describe_end(failure)}\n"
        f"Fix: {advise(failure, layout)}, and create {'them' if actors[1:] else 'it'} again"
    )


def describe_lost_actors(actors: list[Any], reason: str) -> str:
    """Return the warning about actors that were lost for a reason."""
    names = ", ".join(map(str, actors[:3])) + (f" and {len(actors) - 3} more" if actors[3:] else "")
    lost = (
        f"actors {names} are lost, and their" if actors[1:] else f"actor {names} is lost, and its"
    )
    return f"{lost} calls raise an OSError, later ones a RuntimeError: {reason}"
