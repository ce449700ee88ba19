"""Description of a training for its ranks, and creation of its network.

Only the functions import torch, so that the client can read the settings without it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from hyperplane.core.optional import need
from hyperplane.core.permanent_errors import mark_permanent_errors
from hyperplane.ml.estimators.metric_base import NetworkMetric
from hyperplane.ml.estimators.torch_callbacks import Callback
from hyperplane.ml.estimators.torch_losses import takes

#: Names of checkpoints: after an epoch, and after a step within one.
EPOCH_CHECKPOINT, STEP_CHECKPOINT = "checkpoint.{}.pt", "step.{}.pt"


@dataclass(frozen=True)
class TorchProgram:
    """Everything that a rank needs, except its rows.

    Parameters
    ----------
    network : bytes
        Pickled model, optimizer and loss, or the functions that create them; model and optimizer
        are one pickle, because they share parameters.
    state : mapping
        State dictionaries of earlier training; empty at first.
    """

    network: bytes
    config: Mapping[str, Any]
    metrics: Sequence[NetworkMetric]
    state: Mapping[str, Any]
    batch_size: int
    epochs: int = 1
    rows: tuple[int, ...] = ()
    validation_rows: tuple[int, ...] = ()
    pieces: int = 0
    loader: Any = None
    validation_loader: Any = None
    shuffle: bool = False
    seed: int = 0
    step_freq: str = "epoch"
    clipping: tuple[float, ...] = ()
    interval: int = 0
    max_steps: int | None = None
    initialize: Callable[[], Any] | None = None
    callbacks: Sequence[Callback] = ()
    num_steps: int | None = None


@mark_permanent_errors()
def create_network(network: bytes, config: Mapping[str, Any], seed: int) -> tuple[Any, ...]:
    """Return model, optimizer, loss and scheduler; the weights depend on the seed only."""
    torch = need("torch", extra="torch")
    # The bytes are from the user's own client, as every function of a task.
    parts = cloudpickle.loads(network)
    model, optimizer, loss = parts["model"], parts["optimizer"], parts["loss"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(model, type) and not takes(model, 1):
            model = model()
        elif not isinstance(model, torch.nn.Module):
            model = model(config)
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer(model, config)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("LBFGS computes the loss several times in a step; use another optimizer")
    scheduler = parts["scheduler"](optimizer, config) if parts["scheduler"] else None
    return model, optimizer, create_loss(loss, config), scheduler


def create_loss(loss: Any, config: Mapping[str, Any]) -> Any:
    """Return the loss of an instance, a class, ``f(output, label)`` or a creator ``f(config)``."""
    if isinstance(loss, type):
        return loss()
    if inspect.isfunction(loss):
        parameters = inspect.signature(loss).parameters.values()
        if sum(each.default is each.empty for each in parameters) < 2:
            return loss(config)
    return loss


def find_checkpoint(folder: str | os.PathLike[str], *names: str) -> int:
    """Return the largest number of the checkpoints in a folder; -1 if there are none."""
    files = [file for name in names for file in Path(folder).glob(f"{name}.*.pt")]
    return max((int(file.suffixes[-2][1:]) for file in files), default=-1)


def find_checkpoint_file(path: str | os.PathLike[str], number: int | None) -> Path | None:
    """Return a checkpoint in a folder or its folders; by default the last one, None without one."""
    try:
        folders = [Path(path), *sorted(each for each in Path(path).glob("*") if each.is_dir())]
        for folder in reversed(folders):
            wanted = find_checkpoint(folder, "checkpoint", "step") if number is None else number
            for form in (EPOCH_CHECKPOINT, STEP_CHECKPOINT):
                file = folder / form.format(wanted)
                if file.is_file():
                    return file
    except OSError:  # the name is too long, or the folder of another user
        pass
    return None


def to_cpu(state: Any) -> Any:
    """Return a state with copies of its tensors on the CPU."""
    if hasattr(state, "cpu"):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {key: to_cpu(value) for key, value in state.items()}
    return [to_cpu(each) for each in state] if isinstance(state, list) else state
