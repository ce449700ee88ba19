"""Callbacks of ``fit``, under Orca's names; every rank calls its copies of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hyperplane.core.argument_checks import describe_value, find_flag_faults, is_one_of
from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import need
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.ml.estimators.torch_losses import compute_loss
from hyperplane.ml.estimators.torch_runner import TorchRunner
from hyperplane.ml.estimators.torch_settings import find_path_faults

_ENDING, _LAST = ".ckpt", "last"


class Callback:
    """Base class of callbacks; a subclass overrides the methods that it needs.

    Each rank calls the methods of its copy with its :class:`TorchRunner`. A callback that sets
    ``runner.stop`` in any rank ends the training of all ranks after the current step or epoch.
    """

    def before_run(self, runner: TorchRunner) -> None:
        """Run before the first epoch, also after a restart."""

    def after_run(self, runner: TorchRunner) -> None:
        """Run after the last epoch."""

    def before_epoch(self, runner: TorchRunner) -> None:
        """Run before each epoch of training and validation."""

    def after_epoch(self, runner: TorchRunner) -> None:
        """Run after each epoch of training and validation."""

    def before_iter(self, runner: TorchRunner) -> None:
        """Run before each step of training and validation."""

    def after_iter(self, runner: TorchRunner) -> None:
        """Run after each step of training and validation."""

    def before_train_epoch(self, runner: TorchRunner) -> None:
        """Run before each epoch of training."""
        self.before_epoch(runner)

    def after_train_epoch(self, runner: TorchRunner) -> None:
        """Run after each epoch of training; ``runner.epoch_stats`` has its values."""
        self.after_epoch(runner)

    def before_train_iter(self, runner: TorchRunner) -> None:
        """Run before each step of training; ``runner.batch`` has its rows."""
        self.before_iter(runner)

    def after_train_iter(self, runner: TorchRunner) -> None:
        """Run after each step of training; ``runner.metrics_stats`` has its loss."""
        self.after_iter(runner)

    def before_val_epoch(self, runner: TorchRunner) -> None:
        """Run before each validation."""
        self.before_epoch(runner)

    def after_val_epoch(self, runner: TorchRunner) -> None:
        """Run after each validation."""
        self.after_epoch(runner)

    def before_val_iter(self, runner: TorchRunner) -> None:
        """Run before each step of validation."""
        self.before_iter(runner)

    def after_val_iter(self, runner: TorchRunner) -> None:
        """Run after each step of validation."""
        self.after_iter(runner)

    def every_n_iter(self, runner: TorchRunner, n: int) -> bool:
        """Return whether the number of finished steps is a multiple of n."""
        return n > 0 and runner.global_step % n == 0

    def every_n_epoch(self, runner: TorchRunner, n: int) -> bool:
        """Return whether the number of finished epochs is a multiple of n."""
        return n > 0 and runner.epochs % n == 0


class MainCallback(Callback):
    """The forward and backward passes of a step; ``fit`` takes at most one such callback."""

    def on_iter_forward(self, runner: TorchRunner) -> None:
        """Set ``runner.output``, ``runner.target`` and ``runner.loss`` from ``runner.batch``."""
        *features, target = runner.batch
        runner.target = target
        runner.output = runner.model(*features)
        labels = target if isinstance(target, list | tuple) else [target]
        runner.loss = compute_loss(runner.criterion, runner.output, labels)

    def on_train_forward(self, runner: TorchRunner) -> None:
        """Run the forward pass of training."""
        self.on_iter_forward(runner)

    def on_val_forward(self, runner: TorchRunner) -> None:
        """Run the forward pass of validation."""
        if runner.criterion is None:
            *features, runner.target = runner.batch
            runner.output = runner.model(*features)
        else:
            self.on_iter_forward(runner)

    def on_iter_backward(self, runner: TorchRunner) -> None:
        """Run the backward pass, and let the optimizer take a step.

        ``runner.loss`` is already multiplied by the factor that makes the average over ranks the
        average over rows.
        """
        runner.optimizer.zero_grad(set_to_none=True)
        runner.loss.backward()
        runner.clip_gradients()
        runner.optimizer.step()

    def on_lr_adjust(self, runner: TorchRunner) -> None:
        """Let the scheduler take its step after an epoch."""
        runner.step_scheduler()


class ModelCheckpoint(Callback):
    """Write a checkpoint after every ``interval`` epochs or steps, and ``last.ckpt`` at the end.

    Parameters
    ----------
    filepath : str or path
        Path without suffix, such as ``models/net-{epoch}``, of which the first file is
        ``models/net-epoch=1.ckpt``; ``{iter}`` is the number of steps. Rank 0 writes the files.
    save_weights_only : bool
        Whether to leave out the state of optimizer and scheduler.
    by_epoch : bool
        Whether ``interval`` is a number of epochs, not of steps.
    interval : int
        Epochs or steps between checkpoints. With -1, there is one after each epoch if ``by_epoch``
        is true, otherwise only ``last.ckpt``.

    Raises
    ------
    RequestError
        With every fault of the arguments.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str] = "",
        save_weights_only: bool = False,
        by_epoch: bool = True,
        interval: int = -1,
    ) -> None:
        faults = find_path_faults("filepath", filepath)
        faults += find_flag_faults(save_weights_only=save_weights_only, by_epoch=by_epoch)
        if not isinstance(interval, int) or isinstance(interval, bool):
            faults.append(Fault("interval", describe_value(interval), "an integer"))
        if not faults and set(_FIELD.findall(str(filepath))) - {"epoch", "iter"}:
            allowed = "a path with no other fields than {epoch} and {iter}"
            faults.append(Fault("filepath", describe_value(str(filepath)), allowed))
        check(faults)
        self.filepath = os.fspath(filepath)
        self.save_weights_only, self.by_epoch = save_weights_only, by_epoch
        self.interval = 1 if by_epoch and interval < 0 else interval

    def after_train_epoch(self, runner: TorchRunner) -> None:
        """Write the checkpoint of an epoch."""
        if self.by_epoch and self.every_n_epoch(runner, self.interval):
            self._save(runner, Path(self.filepath).name)

    def after_train_iter(self, runner: TorchRunner) -> None:
        """Write the checkpoint of a step."""
        if not self.by_epoch and self.every_n_iter(runner, self.interval):
            self._save(runner, Path(self.filepath).name)

    def after_run(self, runner: TorchRunner) -> None:
        """Write the last checkpoint."""
        self._save(runner, _LAST)

    def _save(self, runner: TorchRunner, pattern: str) -> None:
        values = {"epoch": runner.epochs, "iter": runner.global_step}
        name = _FIELD.sub(lambda found: found[1] + "=" + found[0], pattern).format(**values)
        file = Path(self.filepath).parent / f"{name}{_ENDING}"
        runner.save_checkpoint(str(file), self.save_weights_only)

    @classmethod
    def get_latest_checkpoint(cls, dirname: str | os.PathLike[str]) -> str:
        """Return the path of ``last.ckpt`` in a folder.

        Raises
        ------
        RequestError
            If the folder does not have this file.
        """
        check(find_path_faults("dirname", dirname))
        file = Path(dirname) / f"{_LAST}{_ENDING}"
        if not os.path.isfile(file):  # noqa: PTH113 - Path raises if it is too long
            check([Fault("dirname", str(dirname), f"a folder with {file.name}")])
        return str(file)


_FIELD = re.compile(r"\{(\w+)(?::[^{}]*)?\}")


class TensorBoardCallback(Callback):
    """Write the values of epochs or steps for TensorBoard.

    The package ``tensorboard`` must be installed in this process and on the workers.

    Parameters
    ----------
    log_dir : str or path
        Folder in which rank 0 writes, on the machine of its worker.
    freq : {"epoch", "batch"} or int
        After what values are written; an integer is a number of steps.
    **kwargs
        Other arguments of ``torch.utils.tensorboard.SummaryWriter``.

    Raises
    ------
    RequestError
        With every fault of the arguments.
    MissingPackage
        If ``tensorboard`` is not installed in this process.
    """

    def __init__(
        self, log_dir: str | os.PathLike[str], freq: str | int = "epoch", **kwargs: Any
    ) -> None:
        faults = find_path_faults("log_dir", log_dir)
        is_count = isinstance(freq, int) and not isinstance(freq, bool) and freq > 0
        if not is_count and not is_one_of(freq, ("epoch", "batch")):
            allowed = '"epoch", "batch" or a number of steps'
            faults.append(Fault("freq", describe_value(freq), allowed))
        check(faults)
        need("tensorboard", extra="torch")
        self.log_dir, self.freq, self.kwargs = os.fspath(log_dir), freq, kwargs

    def after_train_iter(self, runner: TorchRunner) -> None:
        """Write the loss of a step."""
        interval = 1 if self.freq == "batch" else self.freq
        if isinstance(interval, int) and runner.global_step % interval == 0:
            self._write(runner, runner.metrics_stats, runner.global_step)

    def after_train_epoch(self, runner: TorchRunner) -> None:
        """Write the values of an epoch."""
        if self.freq == "epoch":
            self._write(runner, runner.epoch_stats, runner.epochs)

    def _write(self, runner: TorchRunner, values: Mapping[str, Any], number: int) -> None:
        if runner.rank:
            return
        writer_class = need("torch.utils.tensorboard", extra="torch").SummaryWriter
        with writer_class(log_dir=self.log_dir, **self.kwargs) as writer:
            for name, value in values.items():
                if name not in ("epoch", "num_samples") and isinstance(value, float):
                    writer.add_scalar(name, value, number)


def find_callback_faults(callbacks: Any) -> list[Fault]:
    """Return a fault for each object that is not a callback.

    Examples
    --------
    >>> [fault.where for fault in find_callback_faults([Callback(), 3])]
    ['callbacks[1]']
    """
    if callbacks is None:
        return []
    if not isinstance(callbacks, list | tuple):
        return [Fault("callbacks", describe_value(callbacks), "a list of callbacks")]
    faults = []
    for number, each in enumerate(callbacks):
        where = f"callbacks[{number}]"
        if isinstance(each, Callback):
            faults += find_pickle_faults(where, each)
        else:
            allowed = "an object of a subclass of hyperplane.orca.learn.pytorch.callbacks.Callback"
            faults.append(Fault(where, describe_value(each), allowed))
    if sum(isinstance(each, MainCallback) for each in callbacks) > 1:
        faults.append(Fault("callbacks", "more than one MainCallback", "at most one"))
    return faults


def find_main_callback(callbacks: Sequence[Callback]) -> MainCallback:
    """Return the callback with the passes of a step."""
    found = [each for each in callbacks if isinstance(each, MainCallback)]
    return found[0] if found else MainCallback()
