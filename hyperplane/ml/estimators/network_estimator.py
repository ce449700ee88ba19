"""Base class of estimators: what PyTorch and other frameworks have in common."""

from __future__ import annotations

import functools
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar, cast

from hyperplane.core.active_cluster import find_client_faults, get_active_client
from hyperplane.core.argument_checks import describe_value, find_count_faults
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.optional import is_installed, need
from hyperplane.core.public_calls import check_call, nearest, warn_caller
from hyperplane.ml.process_gang import gang

#: Names of the values of each step of PyTorch, in the order of its row.
_STEP_TAGS = ("Loss", "LearningRate", "Throughput")
Summary = list[tuple[int, float, float]]
Method = TypeVar("Method", bound=Callable[..., Any])


def accept_checkpoint(name: str) -> Callable[[Method], Method]:
    """Decorate a method so that its argument ``name`` may be given as ``checkpoint``.

    Versions of Orca have both names for the path of ``save`` and ``load``.
    """

    def decorate(method: Method) -> Method:
        checked: Callable[..., Any] = check_call(method)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            if "checkpoint" in options and not args and name not in options:
                options[name] = options.pop("checkpoint")
            return checked(self, *args, **options)

        return cast(Method, call)

    return decorate


class NetworkEstimator(ABC):
    """A network that the workers of the cluster train, evaluate and use together.

    Subclasses add the framework: they train in a gang, and record the values of ``fit`` by tag.
    """

    #: Tags of :meth:`get_train_summary`, besides those that were recorded.
    _tags: Sequence[str] = _STEP_TAGS

    def __init__(self, ranks: int | None, workers_per_node: int | None) -> None:
        self._ranks, self._workers_per_node = ranks, workers_per_node
        self._clipping: tuple[float, ...] = ()
        self._log: tuple[str, str] | None = None
        self._train: dict[str, Summary] = {}
        self._validation: dict[str, Summary] = {}

    @abstractmethod
    def fit(self, *args: Any, **options: Any) -> Any:
        """Train the network; return one dictionary for each epoch."""

    @abstractmethod
    def evaluate(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return loss and metrics."""

    @abstractmethod
    def predict(self, *args: Any, **options: Any) -> Any:
        """Return predictions in the form of the data."""

    @abstractmethod
    def get_model(self) -> Any:
        """Return the trained model."""

    @abstractmethod
    def save(self, model_path: str | os.PathLike[str]) -> str:
        """Write the model; return the path."""

    @abstractmethod
    def load(self, model_path: str | os.PathLike[str]) -> Any:
        """Read a model that :meth:`save` has written."""

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:  # noqa: A002 - Orca's
        """Limit each gradient to a range in the next calls of ``fit``."""
        faults = [*_find_number_faults("min", min), *_find_number_faults("max", max)]
        if not faults and not min < max:
            faults.append(Fault("min", repr(min), f"less than max={max!r}"))
        check(faults)
        self._clipping = (float(min), float(max))

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Limit the norm of all gradients in the next calls of ``fit``."""
        faults = _find_number_faults("clip_norm", clip_norm)
        if not faults and not 0 < clip_norm < math.inf:
            faults.append(Fault("clip_norm", repr(clip_norm), "a number above 0"))
        check(faults)
        self._clipping = (float(clip_norm),)

    def clear_gradient_clipping(self) -> None:
        """Do not limit gradients."""
        self._clipping = ()

    def set_tensorboard(self, log_dir: str | os.PathLike[str], app_name: str) -> None:
        """Write the values of the next calls of ``fit`` for TensorBoard, if it is installed.

        The folders are ``log_dir/app_name/train`` and ``log_dir/app_name/validation``. For PyTorch
        this process writes them at the end of ``fit``; for Keras rank 0 does during ``fit``.
        """
        faults = []
        for where, value in (("log_dir", log_dir), ("app_name", app_name)):
            if not isinstance(value, str | os.PathLike) or not str(value).strip():
                faults.append(Fault(where, describe_value(value), "a name or path"))
        check(faults)
        self._log = (os.fspath(log_dir), str(app_name))

    def get_train_summary(self, tag: str | None = None) -> Summary:
        """Return ``(step, value, time)`` of ``"Loss"``, the default, or another tag."""
        return self._get_summary(self._train, tag, list(dict.fromkeys([*self._tags, *self._train])))

    def get_validation_summary(self, tag: str | None = None) -> Summary:
        """Return ``(step, value, time)`` of ``"Loss"``, the default, or a metric, per epoch."""
        return self._get_summary(self._validation, tag, list(self._validation) or ["Loss"])

    def shutdown(self, force: bool = False) -> None:  # noqa: B027 - for Orca's programs
        """Do nothing: ranks end with each call, the cluster with its client."""

    def _get_summary(self, values: dict[str, Summary], tag: Any, known: Sequence[str]) -> Summary:
        tag = "Loss" if tag is None else tag
        by_lower_case = {name.lower(): name for name in known}
        name = by_lower_case.get(tag.lower()) if isinstance(tag, str) else None
        if name is None:
            near = nearest(tag, known) if isinstance(tag, str) else []
            advice = f"did you mean {near[0]}?" if near else ""
            check([Fault("tag", describe_value(tag), f"one of {', '.join(known)}", advice)])
        return list(values.get(str(name), ()))

    def _record(self, steps: Sequence[Sequence[float]], history: Sequence[dict[str, Any]]) -> None:
        """Keep the values of new steps, ``[step, loss, rate, rows, time]``, and of epochs."""
        before = steps[0][4] if steps else 0.0
        for step, loss, rate, rows, moment in steps:
            seconds = moment - before
            throughput = rows / seconds if seconds > 0 else 0.0
            before = moment
            for name, value in zip(_STEP_TAGS, (loss, rate, throughput), strict=True):
                self._train.setdefault(name, []).append((int(step), value, moment))
        count = len(steps) // max(1, len(history))
        for number, epoch in enumerate(history, 1):
            last = steps[min(number * count, len(steps)) - 1]
            for key, value in epoch.items():
                if key.startswith("val_"):
                    name = "Loss" if key == "val_loss" else key.removeprefix("val_")
                    self._validation.setdefault(name, []).append((int(last[0]), value, last[4]))
        self._write_tensorboard(int(steps[0][0]) if steps else 0)

    def _check_losses(self, losses: Sequence[float]) -> None:
        """Warn if the loss of an epoch is not a finite number; no framework does."""
        number = next((n for n, loss in enumerate(losses, 1) if not math.isfinite(loss)), None)
        if number is not None:
            warn_caller(
                f"the training loss of epoch {number} of {len(losses)} is {losses[number - 1]}: "
                "look for missing or infinite values in inputs and labels, or use a smaller "
                "learning rate"
            )

    def _write_tensorboard(self, first: int) -> None:
        if self._log is None or not (is_installed("torch") and is_installed("tensorboard")):
            return
        writer_class = need("torch.utils.tensorboard", extra="torch").SummaryWriter
        for kind, values in (("train", self._train), ("validation", self._validation)):
            if values:
                with writer_class(str(Path(*self._log, kind))) as writer:
                    for name, points in values.items():
                        for step, value, moment in points:
                            if step >= first:
                                writer.add_scalar(name, value, step, walltime=moment)

    def _run_gang(self, *args: Any, **options: Any) -> list[Any]:
        """Run a gang; a fault of its size names the argument of this estimator."""
        try:
            return gang(*args, **options)
        except RequestError as error:
            where = "workers_per_node" if self._ranks is None else "ranks"
            error.replace_faults(
                [replace(each, where=where) if each.where == "n" else each for each in error.faults]
            )
            raise

    def _find_client(self) -> tuple[Any, int, list[Fault]]:
        """Return client, number of ranks, and the faults of the client."""
        client = get_active_client()
        faults = find_client_faults(client)
        if self._ranks is not None or faults:
            return client, self._ranks or 1, faults
        workers = client.scheduler_info(n_workers=-1)["workers"]  # type: ignore[union-attr]
        if self._workers_per_node is not None:
            hosts = {each["host"] for each in workers.values()}
            return client, self._workers_per_node * len(hosts), []
        return client, max(1, len(workers)), []


def divide_batch_size(batch_size: int, ranks: int, is_global: bool) -> int:
    """Return the batch size of each rank.

    Examples
    --------
    >>> divide_batch_size(32, 2, is_global=True), divide_batch_size(32, 2, is_global=False)
    (16, 32)
    """
    check(find_count_faults("batch_size", batch_size))
    if not is_global:
        return int(batch_size)
    if batch_size % ranks:
        check([Fault("batch_size", str(batch_size), f"a multiple of the {ranks} ranks")])
    return int(batch_size) // ranks


def _find_number_faults(where: str, value: Any) -> list[Fault]:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and -sys.float_info.max <= value <= sys.float_info.max:
        return []
    return [Fault(where, describe_value(value), "a finite number")]
