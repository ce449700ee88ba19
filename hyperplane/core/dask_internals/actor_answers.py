"""Workaround for a bug of distributed 2026.8: calls of lost actors that never end.

If the worker of an actor has ended, a call waits for the key of the actor. The error of that key is
raised in the event loop instead of the call, which then waits forever; in a task, where the state
of the key is not known, each such call does. Here the call ends with Dask's ``OSError``. If the
scheduler knows why the worker has ended, the message has the reason.

Workers without this package receive this module by value, so it imports no other module of the
package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed.actor import Actor
from distributed.diagnostics.plugin import WorkerPlugin

#: Events of a scheduler about lost actors, with their keys, the worker and the reason.
LOST_ACTORS = "hyperplane-lost-actors"
#: Seconds for the answer of the scheduler about the reason.
_ANSWER_SECONDS = 5.0
_FIELD = "_worker_rpc"


class ActorAnswers(WorkerPlugin):
    """Worker plugin that lets calls of lost actors end, in tasks of the worker."""

    name = "hyperplane-actor-answers"

    def setup(self, worker: Any) -> None:
        """Install it in the process of a worker."""
        del worker
        install_actor_answers()


def install_actor_answers() -> None:
    """Let calls of lost actors end, in this process."""
    find_worker = vars(Actor)[_FIELD].fget
    if hasattr(find_worker, "lost_actors"):
        return  # installed before, possibly by a copy of this module that was sent by value

    def find_answering_worker(actor: Any) -> _AnsweringWorker:
        return _AnsweringWorker(actor, find_worker)

    vars(find_answering_worker)["lost_actors"] = LOST_ACTORS
    setattr(Actor, _FIELD, property(find_answering_worker))


class _AnsweringWorker:
    """The connection of an actor to its worker, which answers also if the worker has ended."""

    def __init__(self, actor: Any, find_worker: Callable[[Any], Any]) -> None:
        self._actor, self._worker = actor, find_worker(actor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    async def actor_execute(self, **message: Any) -> Any:
        """Return the answer of the worker to a call, or an answer with the error."""
        try:
            return await self._worker.actor_execute(**message)
        except OSError as error:
            reason = ""
            with suppress(Exception):  # the scheduler may not answer either
                reason = await asyncio.wait_for(_find_reason(self._actor), _ANSWER_SECONDS)
            lost = OSError(f"Unable to contact Actor's worker{reason and f': {reason}'}")
            lost.__cause__ = error
            return {"status": "error", "exception": lost}


async def _find_reason(actor: Any) -> str:
    """Return why an actor was lost; empty if the scheduler does not know it."""
    if actor._client is None:
        return ""
    for _, event in reversed(await actor._client.get_events(LOST_ACTORS)):
        if event["worker"] == actor._address and actor.key in event["actors"]:
            return str(event["reason"])
    return ""
