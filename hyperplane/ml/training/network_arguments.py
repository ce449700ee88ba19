"""Checks of the arguments that all functions which train a network have in common.

PyTorch is not imported: a caller that passes a module has imported it.
"""

from __future__ import annotations

import copy
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from hyperplane.core.active_cluster import find_client_faults
from hyperplane.core.argument_checks import (
    describe_value,
    find_count_faults,
    find_flag_faults,
)
from hyperplane.core.errors import Fault
from hyperplane.core.pickling import find_pickle_faults

#: Most epochs, and most rows of a batch.
_MOST = 2**31 - 1


@dataclass(frozen=True)
class TrainingSettings:
    """Arguments of training that do not depend on how the work is divided.

    Parameters
    ----------
    loss : callable
        ``loss(outputs, labels)``, the mean over the rows of a batch.
    optimizer : callable
        ``optimizer(parameters)``, which creates an optimizer.
    epochs : int
        Number of passes over the data.
    batch_size : int or None
        Rows of a batch; None for all rows.
    shuffle : bool
        Whether the order of rows is drawn for each epoch.
    seed : int
        Seed of the order of rows and of the random numbers of layers.
    checkpoints : str
        Folder of checkpoints; empty for none.
    max_retries : int
        Maximum number of restarts.
    timeout : float or None
        Seconds in which all processes must have started.
    logs : bool or Path
        Whether to print the output of the ranks, or a folder for it.
    """

    loss: Any
    optimizer: Any
    epochs: Any = 1
    batch_size: Any = 32
    shuffle: Any = True
    seed: Any = 0
    checkpoints: Any = None
    max_retries: Any = 3
    timeout: Any = None
    logs: Any = True

    def find_faults(self, client: Any, needs_batch_size: bool = True) -> list[Fault]:
        """Return the faults of the client and of all fields."""
        faults = find_client_faults(client)
        faults += _find_function_faults("loss", self.loss, "a function of outputs and labels")
        expected = "a function of parameters that creates an optimizer"
        faults += _find_function_faults("optimizer", self.optimizer, expected)
        faults += find_count_faults("epochs", self.epochs, 1, _MOST)
        if needs_batch_size or self.batch_size is not None:
            faults += find_count_faults("batch_size", self.batch_size, 1, _MOST)
        faults += find_flag_faults(shuffle=self.shuffle)
        faults += find_count_faults("seed", self.seed, 0, _MOST)
        faults += find_count_faults("max_retries", self.max_retries, 0)
        if self.checkpoints is not None and not is_folder(self.checkpoints):
            allowed = "the path of a folder that all workers can use"
            faults.append(Fault("checkpoints", describe_value(self.checkpoints), allowed))
        if self.timeout is not None:
            faults += find_seconds_faults("timeout", self.timeout)
        if not isinstance(self.logs, bool) and not is_folder(self.logs):
            allowed = "True, False or the path of a folder"
            faults.append(Fault("logs", describe_value(self.logs), allowed))
        return faults

    @property
    def folder(self) -> str:
        """Absolute path of the folder of checkpoints; empty for none."""
        return "" if self.checkpoints is None else str(Path(self.checkpoints).absolute())


def find_seconds_faults(where: str, value: Any) -> list[Fault]:
    """Return the fault of a value that is not a positive number of seconds."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and 0 < value < math.inf:
        return []
    return [Fault(where, describe_value(value), "seconds, more than 0")]


def find_model_faults(where: str, model: Any, optimizer: Any = None) -> list[Fault]:
    """Return the faults of a module, and of an optimizer that does not accept its parameters."""
    if not is_module(model):
        return [Fault(where, describe_value(model), "a torch.nn.Module")]
    faults = find_pickle_faults(where, model)
    if faults or not callable(optimizer) or not any(True for _ in model.parameters()):
        return faults
    torch = sys.modules["torch"]
    try:
        created = optimizer(copy.deepcopy(model).parameters())
    except Exception as error:  # noqa: BLE001 - any function of the caller
        reason = f"a function of the parameters of {where}: {type(error).__name__}: {error}"
        return [Fault("optimizer", describe_value(optimizer), reason[:300])]
    if not isinstance(created, torch.optim.Optimizer):
        given = f"a function that returns {type(created).__name__}"
        advice = "for example functools.partial(torch.optim.SGD, lr=0.1)"
        return [Fault("optimizer", given, "a function that returns a torch optimizer", advice)]
    return []


def find_shared_parameters(where: str, models: Sequence[Any]) -> list[Fault]:
    """Return the fault of modules that have parameters in common."""
    seen: dict[int, int] = {}
    for number, model in enumerate(models):
        for name, parameter in model.named_parameters():
            other = seen.setdefault(id(parameter), number)
            if other != number:
                allowed = f"separate parameters; {where}[{other}] has the same one"
                return [Fault(f"{where}[{number}]", f"parameter {name!r}", allowed)]
    return []


def is_module(value: Any) -> bool:
    """Return whether a value is a ``torch.nn.Module``.

    Examples
    --------
    >>> is_module(len)
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_folder(value: Any) -> bool:
    """Return whether a value can be the path of a folder; URLs are not.

    Examples
    --------
    >>> is_folder("checkpoints"), is_folder("gs://bucket/checkpoints"), is_folder(" ")
    (True, False, False)
    """
    if not isinstance(value, str | os.PathLike):
        return False
    text = os.fspath(value)
    if not isinstance(text, str) or not text.strip() or "\0" in text or "://" in text:
        return False
    return text.encode("utf-8", "replace").decode() == text


def _find_function_faults(where: str, value: Any, allowed: str) -> list[Fault]:
    if not callable(value):
        return [Fault(where, describe_value(value), allowed)]
    return find_pickle_faults(where, value)
