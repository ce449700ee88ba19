"""Run of a parameter server, in the client: start it, train the epochs, restart a lost server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import Client, wait

from hyperplane.core.dask_internals.actors import ActorLost, call_actor, get_actor_address
from hyperplane.core.errors import Fault, TrainingFailed, check
from hyperplane.core.public_calls import warn_caller
from hyperplane.ml.training.network_arguments import TrainingSettings
from hyperplane.ml.training.parameter_server import (
    CALL_SECONDS,
    ParameterServer,
    train_partition,
)

#: Seconds between two looks at the tasks and the worker of the server.
_INTERVAL = 0.2
#: Seconds in which the loss of a worker becomes known after a call of the server has failed.
_LOSS_SECONDS = 10.0
#: Newest checkpoint, and the one before it.
_FILE, _PREVIOUS = "parameter-server.pt", "parameter-server-previous.pt"


class _ServerLost(Exception):
    """The worker with the server has ended."""


class ParameterServerRun:
    """Training with a parameter server.

    Parameters
    ----------
    partitions : list of distributed.Future
        Data, each with features and labels; some can be None.
    interval : float
        Seconds between two checkpoints.
    """

    def __init__(
        self,
        client: Client,
        model: Any,
        partitions: Sequence[Any],
        settings: TrainingSettings,
        max_staleness: int,
        interval: float,
    ) -> None:
        self._client, self._partitions, self._settings = client, partitions, settings
        self._model = cloudpickle.dumps(model)
        self._max_staleness, self._interval = max_staleness, interval
        self._file = Path(settings.folder, _FILE) if settings.folder else None
        self._state: dict[str, Any] | None = None
        self._saved = time.monotonic()

    def run(self) -> tuple[dict[str, Any], int]:
        """Train all epochs; return the final state of the server and the number of restarts."""
        self._load()
        for restarts in range(self._settings.max_retries + 1):
            try:
                return self._run_server(), restarts
            except _ServerLost as error:
                reason = error
        raise TrainingFailed(
            f"the parameter server was lost and max_retries={self._settings.max_retries} restarts "
            f"are used up: {reason}"
        ) from reason

    def _run_server(self) -> dict[str, Any]:
        arguments = (self._model, self._settings, self._max_staleness, len(self._partitions))
        future = self._client.submit(
            ParameterServer, *arguments, self._state, actor=True, pure=False
        )
        try:
            server = future.result()
            begin = 0 if self._state is None else self._state["epoch"]
            for epoch in range(begin, self._settings.epochs):
                self._call(server, "start_epoch", epoch)
                self._train_epoch(server, epoch)
                self._call(server, "end_epoch")
                self._save(server)
            state: dict[str, Any] = self._call(server, "get_state")
            return state
        finally:
            future.release()

    def _train_epoch(self, server: Any, epoch: int) -> None:
        tasks = [
            self._client.submit(
                train_partition,
                part,
                server,
                self._model,
                self._settings,
                epoch,
                number,
                pure=False,
            )
            for number, part in enumerate(self._partitions)
        ]
        try:
            while any(not task.done() for task in tasks):
                with suppress(TimeoutError):
                    wait(tasks, timeout=_INTERVAL, return_when="FIRST_COMPLETED")
                if all(task.done() for task in tasks) or not self._is_alive(server):
                    break
                for task in tasks:
                    if task.done() and task.status != "finished":
                        self._raise_failure(server, task)
                if time.monotonic() - self._saved > self._interval:
                    self._save(server)
                time.sleep(_INTERVAL / 4)
            if not self._is_alive(server):
                raise _ServerLost(f"worker {get_actor_address(server)} has ended")
            for task in tasks:
                if task.status != "finished":
                    self._raise_failure(server, task)
        finally:
            unfinished = [task for task in tasks if not task.done()]
            if unfinished:
                self._client.cancel(unfinished, force=True)

    def _raise_failure(self, server: Any, task: Any) -> None:
        """Raise the error of a task, or that the server was lost, which is known a little later."""
        error = None if task.status == "cancelled" else task.exception()
        if error is None or isinstance(error, ActorLost):
            deadline = time.monotonic() + _LOSS_SECONDS
            while self._is_alive(server) and time.monotonic() < deadline:
                time.sleep(_INTERVAL)
            raise _ServerLost(f"a task could not reach it: {error or 'it was cancelled'}")
        raise TrainingFailed(f"a batch raised {type(error).__name__}: {error}") from error

    def _is_alive(self, server: Any) -> bool:
        return get_actor_address(server) in self._client.nthreads()

    def _call(self, server: Any, method: str, *args: Any) -> Any:
        try:
            return call_actor(server, method, *args, timeout=CALL_SECONDS)
        except ActorLost as error:
            raise _ServerLost(str(error)) from error

    def _save(self, server: Any) -> None:
        from hyperplane.ml.training.rank_checkpoints import save_state

        self._state = self._call(server, "get_state")
        self._saved = time.monotonic()
        if self._file is not None:
            save_state(self._file, self._state, self._file.with_name(_PREVIOUS))

    def _load(self) -> None:
        """Load the newest checkpoint that is not damaged."""
        from hyperplane.ml.training.rank_checkpoints import DamagedCheckpoint, load_state

        if self._file is None:
            return
        damages = []
        for file in (self._file, self._file.with_name(_PREVIOUS)):
            if not file.exists():
                continue
            try:
                state = load_state(file)
                break
            except DamagedCheckpoint as error:
                damages.append(str(error))
        else:
            if damages:
                warn_caller(f"{'; '.join(damages)}; training begins again")
            return
        if damages:
            warn_caller(f"{damages[0]}; the one before is used")
        if len(state["progress"]) != len(self._partitions):
            given = f"a training of {len(state['progress'])} partitions"
            allowed = f"a training of the same {len(self._partitions)} partitions"
            check([Fault("checkpoints", given, allowed, "use another folder")])
        self._state = state
