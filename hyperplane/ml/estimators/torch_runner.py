"""``TorchRunner``: the state of the training of a rank, for callbacks, under Orca's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyperplane.ml.estimators.torch_settings import write_object


@dataclass
class TorchRunner:
    """State of a training in one rank.

    Parameters
    ----------
    rank, size : int
        Number of this rank, and number of ranks.
    config : mapping
        ``config`` of ``from_torch``.
    model : torch.nn.Module
        The model; during training, wrapped in DistributedDataParallel.
    optimizer, scheduler, criterion : object
        Optimizer, scheduler and loss; None if there is none.
    num_epochs : int
        Epochs of this call of ``fit``.
    epochs, global_step : int
        Finished epochs and steps of all calls of ``fit``.
    batch_idx : int
        Number of the step in its epoch, from 0.
    batch, output, target, loss : object
        Rows, outputs, labels and loss of the current step.
    metrics_stats : dict
        ``train_loss`` and ``num_samples`` of the last step on this rank.
    epoch_stats : dict
        Values of the last epoch, over all ranks.
    stop : bool
        Whether the training ends.
    """

    rank: int
    size: int
    config: Mapping[str, Any]
    model: Any
    optimizer: Any
    scheduler: Any
    criterion: Any
    num_epochs: int
    callbacks: Sequence[Any]
    get_state: Callable[[], dict[str, Any]] = field(repr=False)
    clip_gradients: Callable[[], None] = field(repr=False)
    step_scheduler: Callable[[], None] = field(repr=False)
    epochs: int = 0
    global_step: int = 0
    batch_idx: int = 0
    batch: Any = None
    output: Any = None
    target: Any = None
    loss: Any = None
    stop: bool = False
    metrics_stats: dict[str, Any] = field(default_factory=dict)
    epoch_stats: dict[str, Any] = field(default_factory=dict)
    _objects: dict[Any, Any] = field(default_factory=dict)

    def call(self, name: str) -> None:
        """Call a method of all callbacks."""
        for each in self.callbacks:
            getattr(each, name)(self)

    def save_checkpoint(self, filepath: str, save_weights_only: bool = False) -> str:
        """Write the state of the training for ``load_checkpoint``, in rank 0; return the path."""
        if self.rank == 0:
            state = self.get_state()
            if save_weights_only:
                state |= {"optimizer": {}, "scheduler": {}}
            Path(filepath).parent.mkdir(parents=True, exist_ok=True)
            write_object(state, filepath)
        return filepath

    def remove_checkpoint(self, filepath: str) -> None:
        """Remove a checkpoint in rank 0."""
        if self.rank == 0:
            Path(filepath).unlink(missing_ok=True)

    def put(self, k: Any, v: Any) -> None:
        """Store an object under a name, for other callbacks of this rank."""
        self._objects[k] = v

    update = put

    def get(self, k: Any) -> Any:
        """Return an object that :meth:`put` has stored; None if there is none."""
        return self._objects.get(k)

    def remove(self, k: Any) -> None:
        """Remove an object that :meth:`put` has stored."""
        self._objects.pop(k, None)
