"""Program of a rank: PyTorch's DistributedDataParallel on the rows of the rank."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.core.permanent_errors import mark_permanent_errors
from hyperplane.ml.estimators.network_metrics import FunctionMetric
from hyperplane.ml.estimators.torch_batches import (
    BatchSource,
    PartitionBatches,
    open_loader_batches,
    to_tensors,
)
from hyperplane.ml.estimators.torch_callbacks import MainCallback, find_main_callback
from hyperplane.ml.estimators.torch_losses import (
    LossWeights,
    check_loss,
    clone_output,
    freeze_batch_statistics,
    make_zero_loss,
    to_array,
    to_arrays,
)
from hyperplane.ml.estimators.torch_network import (
    EPOCH_CHECKPOINT,
    STEP_CHECKPOINT,
    TorchProgram,
    create_network,
    to_cpu,
)
from hyperplane.ml.estimators.torch_runner import TorchRunner
from hyperplane.ml.estimators.training_data import join_pieces
from hyperplane.ml.training.rank_checkpoints import load_newest, save_state
from hyperplane.ml.training.rank_process_group import move_loss, start_process_group


@dataclass
class _EpochResult:
    losses: list[float] = field(default_factory=list)
    rows: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


def run_training(pieces: Sequence[Any] | None, program: TorchProgram) -> dict[str, Any] | None:
    """Train in this rank; rank 0 returns the state, the history and the values of each step."""
    return _join(program).train(pieces or ())


def run_evaluation(pieces: Sequence[Any] | None, program: TorchProgram) -> dict[str, Any]:
    """Return loss and metrics over the rows of all ranks."""
    rows = (program.loader, program.rows)
    rank = _join(program)
    return rank.evaluate(rank.open_batches(pieces or (), *rows, evaluation=True))


def run_loader_training(program: TorchProgram) -> dict[str, Any] | None:
    """Train with a Dataset, a DataLoader or a function that creates one."""
    return run_training(None, program)


def run_loader_evaluation(program: TorchProgram) -> dict[str, Any]:
    """Evaluate with a Dataset, a DataLoader or a function that creates one."""
    return run_evaluation(None, program)


def _join(program: TorchProgram) -> _TorchRank:
    if program.initialize is not None:
        program.initialize()
    return _TorchRank(program, start_process_group(can_share_gpus=True))


class _TorchRank:
    """One process of the training."""

    def __init__(self, program: TorchProgram, device: Any) -> None:
        torch = need("torch", extra="torch")
        self._torch, self._program, self._device = torch, program, device
        self._distributed = torch.distributed
        self._rank = self._distributed.get_rank()
        self._size = self._distributed.get_world_size()
        self._model, self._optimizer, self._loss, self._scheduler = create_network(
            program.network, program.config, program.seed
        )
        self._model.to(self._device)
        self._loss = move_loss(self._loss, device)
        self._epoch, self._step = 0, 0
        self._history: list[dict[str, Any]] = []
        self._steps: list[list[float]] = []
        self._first_epoch = self._restore(program.state)
        self._runner: TorchRunner | None = None
        self._main = MainCallback()
        self._finished: set[str] = set()
        self._is_stopped = False
        self._weights = LossWeights(self._loss, self._add)

    def _restore(self, state: Mapping[str, Any]) -> int:
        """Load states; return the number of finished epochs."""
        if state.get("model"):
            self._model.load_state_dict(state["model"])
        if state.get("optimizer") and self._optimizer is not None:
            self._optimizer.load_state_dict(state["optimizer"])
        if state.get("scheduler") and self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        self._epoch, self._step = state.get("epoch", 0), state.get("step", 0)
        return self._epoch

    def open_batches(
        self, pieces: Sequence[Any], loader: Any, rows: tuple[int, ...], evaluation: bool
    ) -> BatchSource:
        """Return the batches of this rank."""
        program = self._program
        if loader is not None:
            with mark_permanent_errors():
                return open_loader_batches(
                    loader, program.config, program.batch_size, self._rank, self._size, evaluation,
                    program.seed,
                )  # fmt: skip
        shuffle = program.shuffle and not evaluation
        return PartitionBatches(
            join_pieces(pieces), rows, program.batch_size, self._rank, shuffle, program.seed
        )

    def train(self, pieces: Sequence[Any]) -> dict[str, Any] | None:
        """Run the epochs that no checkpoint has."""
        program = self._program
        train = self.open_batches(
            pieces[: program.pieces], program.loader, program.rows, evaluation=False
        )
        validation = None
        if program.validation_rows or program.validation_loader is not None:
            validation = self.open_batches(
                pieces[program.pieces :],
                program.validation_loader,
                program.validation_rows,
                evaluation=True,
            )
        self._load_checkpoint()
        self._weights.prepare(train.labels if isinstance(train, PartitionBatches) else None)
        epochs = program.epochs
        last = math.inf
        if program.max_steps is not None:
            epochs = -(-program.max_steps // train.steps)
            last = program.state.get("step", 0) + program.max_steps
        runner = self._start_callbacks(self._wrap())
        runner.call("before_run")
        while self._epoch < self._first_epoch + epochs and not self._is_stopped:
            # Random layers get the same numbers after a restart.
            self._torch.manual_seed(hash((program.seed, self._epoch, self._rank)) % 2**63)
            runner.call("before_train_epoch")
            result = self._train_epoch(runner, train, last)
            self._epoch += 1
            self._record(result, validation)
            self._main.on_lr_adjust(runner)
            runner.epochs, runner.epoch_stats = self._epoch, dict(self._history[-1])
            runner.call("after_train_epoch")
            self._agree_to_stop(runner)
            self._save_checkpoint(EPOCH_CHECKPOINT)  # with the request to stop
        runner.call("after_run")
        if self._rank:
            return None
        return {**self._get_state(), "history": self._history, "steps": self._steps}

    def _start_callbacks(self, wrapped: Any) -> TorchRunner:
        self._main = find_main_callback(self._program.callbacks)
        self._runner = TorchRunner(
            rank=self._rank,
            size=self._size,
            config=self._program.config,
            model=wrapped,
            optimizer=self._optimizer,
            scheduler=self._scheduler,
            criterion=self._loss,
            num_epochs=self._program.epochs,
            callbacks=self._program.callbacks,
            get_state=self._get_state,
            clip_gradients=self._clip,
            step_scheduler=self._step_scheduler,
            epochs=self._epoch,
            global_step=self._step,
        )
        return self._runner

    def _agree_to_stop(self, runner: TorchRunner) -> None:
        if runner.callbacks:
            runner.stop = self._is_stopped = bool(self._add(np.array([runner.stop]))[0])

    def _step_scheduler(self) -> None:
        """Take the step of a scheduler after an epoch."""
        if self._scheduler is None or self._program.step_freq == "batch":
            return
        if isinstance(self._scheduler, self._torch.optim.lr_scheduler.ReduceLROnPlateau):
            stats = self._history[-1]
            self._scheduler.step(stats.get("val_loss", stats["train_loss"]))
        else:
            self._scheduler.step()

    def _train_epoch(self, runner: TorchRunner, batches: BatchSource, last: float) -> _EpochResult:
        program, optimizer, result = self._program, self._optimizer, _EpochResult()
        runner.model.train()
        for number, (x, y, own, total) in enumerate(batches.iterate(self._epoch)):
            if self._step >= last or self._is_stopped:
                break
            inputs, labels = self._to_device(x), self._to_device(y)
            share = self._weights.get_share(labels, own, total)
            target = labels[0] if len(labels) == 1 else labels
            runner.batch_idx, runner.batch = number, (*inputs, target)
            runner.call("before_train_iter")
            with self._mark_errors("training"):
                self._compute_loss(runner, share)
                if "training" not in self._finished:
                    self._find_unused_parameters(runner, share)
                value = runner.loss.item() * share
                # The wrapper averages over ranks; the result is the mean over the rows of the step.
                runner.loss = runner.loss * (share * self._size)
                self._main.on_iter_backward(runner)
            result.rates.append(optimizer.param_groups[0]["lr"])
            if self._scheduler is not None and program.step_freq == "batch":
                self._scheduler.step()
            self._step += 1
            result.losses.append(value)
            result.rows.append(float(own))
            result.times.append(time.time())
            runner.global_step = self._step
            runner.metrics_stats = {"train_loss": value / (share or 1), "num_samples": own}
            runner.call("after_train_iter")
            self._agree_to_stop(runner)
            if program.interval and self._step % program.interval == 0:
                self._save_checkpoint(STEP_CHECKPOINT)
        runner.batch = runner.output = runner.target = runner.loss = None
        return result

    def _wrap(self, **options: bool) -> Any:
        if any(each.requires_grad for each in self._model.parameters()):
            return self._torch.nn.parallel.DistributedDataParallel(self._model, **options)
        return self._model

    def _compute_loss(self, runner: TorchRunner, share: float) -> None:
        if share:
            self._main.on_train_forward(runner)
            check_loss(runner.loss)
            return
        with freeze_batch_statistics(self._model):
            runner.loss = make_zero_loss(runner.model(*runner.batch[:-1]))

    def _find_unused_parameters(self, runner: TorchRunner, share: float) -> None:
        """Wrap the model again if the first step gives some parameters no gradient."""
        parameters = [each for each in self._model.parameters() if each.requires_grad]
        found: Sequence[Any] = ()
        with suppress(RuntimeError):  # of models that recompute activations
            found = self._torch.autograd.grad(
                runner.loss, parameters, retain_graph=True, allow_unused=True
            )
        if self._add(np.array([any(each is None for each in found)]))[0]:
            runner.model = runner.output = runner.loss = None
            gc.collect()  # the first wrapper and its hooks
            runner.model = self._wrap(find_unused_parameters=True)
            runner.model.train()
            self._compute_loss(runner, share)

    @contextmanager
    def _mark_errors(self, name: str) -> Iterator[None]:
        """Mark the errors of the first step of training or evaluation, which would occur again."""
        with nullcontext() if name in self._finished else mark_permanent_errors():
            yield
        self._finished.add(name)

    def _to_device(self, arrays: Sequence[Any]) -> list[Any]:
        return to_tensors(self._torch, arrays, self._model, self._device)

    def _clip(self) -> None:
        limits = self._program.clipping
        parameters = [each for each in self._model.parameters() if each.grad is not None]
        if len(limits) == 1:
            self._torch.nn.utils.clip_grad_norm_(parameters, limits[0])
        elif limits:
            for each in parameters:
                each.grad.clamp_(*limits)

    def _record(self, result: _EpochResult, validation: BatchSource | None) -> None:
        losses = self._add(np.array([result.losses, result.rows]))
        total = losses[1].sum()
        is_sum = getattr(self._loss, "reduction", "mean") == "sum"
        weights = np.ones_like(losses[1]) if is_sum else losses[1]
        stats: dict[str, Any] = {
            "epoch": self._epoch,
            "num_samples": int(total),
            "train_loss": float((losses[0] * weights).sum() / weights.sum()),
        }
        if validation is not None:
            found = self.evaluate(validation)
            stats["val_loss"] = found.pop("val_loss")
            found.pop("num_samples")
            stats |= {f"val_{name.lower()}": value for name, value in found.items()}
        self._history.append(stats)
        first = self._step - len(result.losses)
        for number, (loss, rows) in enumerate(losses.T.tolist()):
            self._steps.append(
                [first + number + 1, loss, result.rates[number], rows, result.times[number]]
            )

    def evaluate(self, batches: BatchSource) -> dict[str, Any]:
        """Return loss and metrics; sums over rows are added over the ranks."""
        torch, metrics = self._torch, self._program.metrics
        sums: list[np.ndarray] = [np.zeros(3), *(np.zeros(each.size) for each in metrics)]
        runner = self._runner or self._start_callbacks(self._model)
        wrapped, runner.model = runner.model, self._model
        self._model.eval()
        for buffer in self._model.buffers():  # running statistics: those that are saved
            self._distributed.broadcast(buffer, 0)
        runner.call("before_val_epoch")
        with torch.no_grad():
            for number, (x, y, own, _) in enumerate(batches.iterate(0)):
                if number == self._program.num_steps:
                    break
                if not own:
                    continue
                labels = self._to_device(y)
                target = labels[0] if len(labels) == 1 else labels
                runner.batch_idx, runner.batch = number, (*self._to_device(x), target)
                runner.call("before_val_iter")
                with self._mark_errors("evaluation"):
                    self._main.on_val_forward(runner)
                    if self._loss is not None:
                        check_loss(runner.loss)
                    sums[0] += [*self._weights.sum_loss(runner.loss, labels, own), own]
                    first, known = to_arrays(runner.output)[0], to_array(labels[0])
                    for position, metric in enumerate(metrics, 1):
                        pair: Any = (first, known)
                        if isinstance(metric, FunctionMetric):  # of tensors, which it may change
                            pair = clone_output(runner.output), target
                        sums[position] = sums[position] + metric.update(*pair)
                runner.call("after_val_iter")
        runner.batch = runner.output = runner.target = runner.loss = None
        runner.model = wrapped
        joined = self._add(np.concatenate(sums))
        parts = np.split(joined, np.cumsum([len(each) for each in sums])[:-1])
        total, divisor, rows = parts[0]
        found: dict[str, Any] = {"num_samples": int(rows)}
        found["val_loss"] = float(total / divisor) if divisor else math.nan
        for metric, part in zip(metrics, parts[1:], strict=True):
            found[metric.get_name()] = metric.compute(part)
        runner.call("after_val_epoch")
        return found

    def _add(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over all ranks."""
        tensor = self._torch.as_tensor(values, dtype=self._torch.float64, device=self._device)
        self._distributed.all_reduce(tensor)
        added: np.ndarray = tensor.cpu().numpy()
        return added

    def _get_state(self) -> dict[str, Any]:
        return {
            "model": to_cpu(self._model.state_dict()),
            "optimizer": to_cpu(self._optimizer.state_dict()) if self._optimizer else {},
            "scheduler": self._scheduler.state_dict() if self._scheduler is not None else {},
            "epoch": self._epoch,
            "step": self._step,
        }

    def _save_checkpoint(self, name: str) -> None:
        folder = os.environ.get("HYPERPLANE_CHECKPOINTS")
        if self._rank or not folder:
            return
        file = Path(folder) / name.format(self._step)
        values = {"history": self._history, "steps": self._steps, "stopped": self._is_stopped}
        save_state(file, {**self._get_state(), **values})

    def _load_checkpoint(self) -> None:
        """Continue after the last epoch of this training that rank 0 can read."""
        folder = os.environ.get("HYPERPLANE_CHECKPOINTS")
        state = load_newest(Path(folder), "checkpoint", self._device) if folder else None
        if state is not None:
            self._restore(state)
            self._history, self._steps = state["history"], state["steps"]
            self._is_stopped = state.get("stopped", False)
