"""Parameter server, an actor of Dask, and the task that trains with the rows of one partition.

The server counts the applied batches of each partition. A task that Dask repeats after the loss of
a worker continues with the first batch that was not applied, and each batch is applied once.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperplane.core.dask_internals.actors import call_actor
from hyperplane.core.optional import need
from hyperplane.ml.training.network_arguments import TrainingSettings

#: Seconds of a call of the server, after which it counts as lost.
CALL_SECONDS = 120.0


@dataclass(frozen=True)
class ServerAnswer:
    """Newest parameters, and the batch to compute next.

    Parameters
    ----------
    version : int
        Number of updates that the parameters include.
    batch : int
        Number of applied batches of the partition.
    parameters, buffers : list of numpy.ndarray
        Values in the order of the model.
    """

    version: int
    batch: int
    parameters: Sequence[np.ndarray]
    buffers: Sequence[np.ndarray]


@dataclass(frozen=True)
class GradientUpdate:
    """Gradient of one batch, computed with the parameters of a version."""

    version: int
    batch: int
    gradients: Sequence[np.ndarray | None]
    buffers: Sequence[np.ndarray]
    loss: float
    rows: int


class ParameterServer:
    """Parameters and optimizer of a model. Dask runs one method at a time.

    Parameters
    ----------
    model : bytes
        Pickled module.
    settings : TrainingSettings
        With the function that creates the optimizer.
    max_staleness : int
        Updates that may be applied between the fetch of parameters and the gradient.
    partitions : int
        Number of partitions.
    state : mapping, optional
        Checkpoint to continue from.
    """

    def __init__(
        self,
        model: bytes,
        settings: TrainingSettings,
        max_staleness: int,
        partitions: int,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = pickle.loads(model).train()  # noqa: S301 - from the client
        self._optimizer = settings.optimizer(list(self._model.parameters()))
        self._max_staleness = max_staleness
        self._version = self._rejected = 0
        self._staleness: Counter[int] = Counter()
        self._history: list[dict[str, float]] = []
        self._start_epoch(0, partitions)
        if state:
            self._load(state)

    def start_epoch(self, epoch: int) -> None:
        """Begin to count the batches of an epoch; one that has begun continues."""
        if epoch != self._epoch:
            self._start_epoch(epoch, len(self._progress))

    def _start_epoch(self, epoch: int, partitions: int) -> None:
        self._epoch, self._progress = epoch, [0] * partitions
        self._loss, self._rows = 0.0, 0

    def end_epoch(self) -> None:
        """Add the epoch to the history."""
        if len(self._history) == self._epoch:
            loss = self._loss / max(self._rows, 1)
            entry = {"epoch": self._epoch + 1, "train_loss": loss, "num_samples": self._rows}
            self._history.append(entry)

    def fetch(self, partition: int) -> ServerAnswer:
        """Return the newest parameters for a partition."""
        # Copies: the values are sent by another thread while the next update changes them.
        return ServerAnswer(
            self._version,
            self._progress[partition],
            [value.detach().numpy().copy() for value in self._model.parameters()],
            [value.detach().numpy().copy() for value in self._model.buffers()],
        )

    def push(self, epoch: int, partition: int, update: GradientUpdate) -> ServerAnswer:
        """Apply a gradient, unless it is too stale or was applied before; return as ``fetch``."""
        is_next = epoch == self._epoch and update.batch == self._progress[partition]
        staleness = self._version - update.version
        if is_next and staleness > self._max_staleness:
            self._rejected += 1
        elif is_next:
            self._apply(update)
            self._staleness[staleness] += 1
            self._progress[partition] += 1
        return self.fetch(partition)

    def _apply(self, update: GradientUpdate) -> None:
        torch = need("torch", extra="torch")
        pairs = zip(self._model.parameters(), update.gradients, strict=True)
        for parameter, gradient in pairs:
            parameter.grad = None if gradient is None else torch.tensor(gradient)
        self._optimizer.step()
        set_values(self._model.buffers(), update.buffers)
        self._version += 1
        self._loss += update.loss * update.rows
        self._rows += update.rows

    def get_state(self) -> dict[str, Any]:
        """Return a checkpoint of tensors and numbers, as bytes of ``torch.save`` hold it."""
        torch = need("torch", extra="torch")
        import copy

        state = {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "version": self._version,
            "rejected": self._rejected,
            "staleness": dict(self._staleness),
            "history": self._history,
            "epoch": self._epoch,
            "progress": self._progress,
            "loss": self._loss,
            "rows": self._rows,
        }
        with torch.no_grad():
            return copy.deepcopy(state)

    def _load(self, state: Mapping[str, Any]) -> None:
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._version, self._rejected = state["version"], state["rejected"]
        self._staleness = Counter(state["staleness"])
        self._history = [dict(entry) for entry in state["history"]]
        self._epoch, self._progress = state["epoch"], list(state["progress"])
        self._loss, self._rows = state["loss"], state["rows"]


def train_partition(
    part: Any, server: Any, model: bytes, settings: TrainingSettings, epoch: int, number: int
) -> None:
    """Compute gradients of the batches of a partition, and send them to the server."""
    from hyperplane.ml.estimators.training_data import order_rows
    from hyperplane.ml.training.rank_process_group import convert

    if part is None:
        return
    torch = need("torch", extra="torch")
    module = pickle.loads(model).train()  # noqa: S301 - from the client
    inputs = [convert(each, module, "cpu") for each in part[0]]
    labels = convert(part[1][0], module, "cpu")
    order = order_rows(len(labels), settings.shuffle, settings.seed, epoch, number)
    size = settings.batch_size or max(len(order), 1)
    answer = call_actor(server, "fetch", number, timeout=CALL_SECONDS)
    while answer.batch * size < len(order):
        set_values(module.parameters(), answer.parameters)
        set_values(module.buffers(), answer.buffers)
        rows = torch.from_numpy(order[answer.batch * size : (answer.batch + 1) * size])
        module.zero_grad()
        loss = settings.loss(module(*(each[rows] for each in inputs)), labels[rows])
        loss.backward()
        gradients = [None if each.grad is None else each.grad for each in module.parameters()]
        update = GradientUpdate(
            answer.version,
            answer.batch,
            [None if each is None else each.numpy() for each in gradients],
            [each.detach().numpy() for each in module.buffers()],
            float(loss.detach()),
            len(rows),
        )
        answer = call_actor(server, "push", epoch, number, update, timeout=CALL_SECONDS)


def set_values(tensors: Any, values: Sequence[np.ndarray]) -> None:
    """Copy arrays into tensors."""
    torch = need("torch", extra="torch")
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(torch.tensor(value))
