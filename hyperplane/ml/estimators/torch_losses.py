"""Losses of PyTorch: their arguments, and the divisor of their mean."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hyperplane.core.optional import need


def compute_loss(loss: Any, output: Any, labels: Sequence[Any]) -> Any:
    """Return ``loss(output, *labels)``; several outputs are arguments of a loss that takes them.

    Examples
    --------
    >>> compute_loss(lambda output, label: output - label, 5, [3])
    2
    >>> compute_loss(lambda first, second, label: first + second - label, (5, 1), [3])
    3
    >>> compute_loss(lambda outputs, label: outputs[0] - label, (5, 1), [3])
    2
    """
    if isinstance(output, tuple | list):
        outputs = list(output)
        if takes(getattr(loss, "forward", loss), len(outputs) + len(labels)):
            return loss(*outputs, *labels)
    return loss(output, *labels)


def takes(function: Any, count: int) -> bool:
    """Return whether a function requires ``count`` positional arguments, or takes any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # functions of C++ have no signature
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.kind in kinds and each.default is each.empty]
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    return len(needed) == count or (takes_any and len(needed) <= count)


def check_loss(value: Any) -> None:
    """Raise TypeError if a loss is not one number.

    Examples
    --------
    >>> check_loss(0.5)
    Traceback (most recent call last):
    ...
    TypeError: the loss is a float; expected a tensor with the mean over the rows
    """
    given = type(value).__name__
    if hasattr(value, "numel"):
        if value.numel() == 1:
            return
        given = f"tensor of the shape {tuple(value.shape)}"
    raise TypeError(f"the loss is a {given}; expected a tensor with the mean over the rows")


class LossWeights:
    """Weights with which ranks add their losses, so that the sum is the mean over all rows.

    CrossEntropyLoss and NLLLoss divide by the weights of the labels, which differ if they have
    weights of classes or ignored labels; other losses divide by rows, or have the reduction "sum".

    Parameters
    ----------
    loss : object
        The loss; None in an evaluation without one.
    add : callable
        Returns the sums over ranks of an array.
    """

    def __init__(self, loss: Any, add: Callable[[np.ndarray], np.ndarray]) -> None:
        torch = need("torch", extra="torch")
        self._loss, self._add = loss, add
        self._is_sum = getattr(loss, "reduction", "mean") == "sum"
        kinds = (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss)
        self._has_labels = isinstance(loss, kinds) and not self._is_sum
        self._may_differ = self._has_labels

    def prepare(self, labels: Sequence[np.ndarray] | None) -> None:
        """Record whether labels of any rank may differ in weight; None are unknown labels."""
        if self._has_labels:
            found = labels is None or self._loss.weight is not None
            if not found and labels:
                found = bool((labels[0] == self._loss.ignore_index).any())
            self._may_differ = bool(self._add(np.array([found]))[0])

    def get_share(self, labels: Sequence[Any], own: int, total: int) -> float:
        """Return the factor of the loss of this rank, with ``own`` of ``total`` rows of a step."""
        if self._is_sum:
            return float(bool(own))
        if not self._may_differ:
            return own / total
        weight = self._sum_weights(labels[0]) if own else 0.0
        everything = float(self._add(np.array([weight]))[0])
        return weight / everything if everything else 0.0

    def sum_loss(self, value: Any, labels: Sequence[Any], own: int) -> tuple[float, float]:
        """Return the sum of the loss over ``own`` rows, and the divisor of its mean."""
        if self._loss is None:
            return math.nan, own
        if self._is_sum:
            return value.item(), own
        weight = self._sum_weights(labels[0]) if self._has_labels else own
        return (value.item() * weight, weight) if weight else (0.0, 0.0)

    def _sum_weights(self, label: Any) -> float:
        if label.is_floating_point():  # probabilities of classes
            return float(len(label))
        kept = label[label != self._loss.ignore_index].long()
        if self._loss.weight is None:
            return float(kept.numel())
        return float(self._loss.weight.double()[kept].sum())


def make_zero_loss(output: Any) -> Any:
    """Return 0 with the graph of all outputs, for a rank without rows in a step."""
    return sum(each.double().nan_to_num(0, 0, 0).sum() * 0 for each in list_tensors(output))


def list_tensors(output: Any) -> list[Any]:
    """Return the tensors of floats in the output of a model."""
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, tuple | list):
        return [tensor for each in output for tensor in list_tensors(each)]
    return [output] if hasattr(output, "is_floating_point") and output.is_floating_point() else []


@contextmanager
def freeze_batch_statistics(model: Any) -> Iterator[None]:
    """Use the running statistics of batch normalization in a block, and do not change them."""
    torch = need("torch", extra="torch")
    kind, collective = torch.nn.modules.batchnorm._BatchNorm, torch.nn.SyncBatchNorm
    chosen = [
        each
        for each in model.modules()
        if isinstance(each, kind) and not isinstance(each, collective) and each.training
    ]
    for each in chosen:
        each.eval()
    try:
        yield
    finally:
        for each in chosen:
            each.train()


def to_array(value: Any) -> np.ndarray:
    """Return a tensor as an array of NumPy, which has no bfloat16."""
    torch = need("torch", extra="torch")
    tensor = value.detach().cpu()
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def to_arrays(output: Any) -> list[np.ndarray]:
    """Return the outputs of a model as arrays.

    Raises
    ------
    TypeError
        If an output is not a tensor.
    """
    outputs = output
    if isinstance(output, Mapping):
        outputs = list(output.values())
    elif not isinstance(output, tuple | list):
        outputs = [output]
    wrong = [type(each).__name__ for each in outputs if not hasattr(each, "detach")]
    if wrong or not outputs:
        raise TypeError(f"the model returns {wrong}; expected tensors")
    return [to_array(each) for each in outputs]


def clone_output(output: Any) -> Any:
    """Return copies of the outputs of a model."""
    if isinstance(output, tuple | list):
        return [clone_output(each) for each in output]
    return output.clone() if hasattr(output, "clone") else output
