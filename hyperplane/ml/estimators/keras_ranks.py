"""Functions that each rank of a gang runs for ``fit`` and ``evaluate`` of a Keras model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.core.permanent_errors import mark_permanent_errors
from hyperplane.ml.estimators.keras_averaging import RankGroup, share_steps
from hyperplane.ml.estimators.keras_batches import (
    BatchPlan,
    begin_at,
    find_start,
    join_arrays,
    make_array_dataset,
    make_creator_dataset,
    read_inputs,
    take_all_rows,
    take_share,
    weigh_dataset,
)
from hyperplane.ml.estimators.keras_checkpoints import (
    CheckpointFolder,
    FitProgress,
    make_checkpoint_callback,
)
from hyperplane.ml.estimators.keras_epoch_steps import (
    RankVariables,
    build_metrics,
    make_callback_list,
)
from hyperplane.ml.estimators.keras_graphs import DatasetGraph
from hyperplane.ml.estimators.keras_model import KerasModel, find_loss_fault, save_weights
from hyperplane.ml.estimators.keras_rank_callbacks import (
    choose_callbacks,
    make_padding_callback,
    make_seed_callback,
    make_start_callback,
    make_stop_callback,
    mark_errors_of_first_step,
)
from hyperplane.ml.estimators.training_data import join_pieces

#: Variables of ranks: TensorFlow reports its servers at the level of information.
ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}


@dataclass(frozen=True)
class DataSource:
    """Rows for all ranks: pieces that the gang passes, a dataset, or a function that makes it.

    Parameters
    ----------
    pieces : int
        Number of the pieces that each rank gets.
    rows : tuple of int
        Rows of each rank, if there are pieces.
    graph : DatasetGraph, optional
        A dataset.
    creator : callable, optional
        Function of the user, called with ``config`` and the batch size.
    config : mapping
        Its first argument.
    """

    pieces: int = 0
    rows: tuple[int, ...] = ()
    graph: DatasetGraph | None = None
    creator: Callable[..., Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def make_dataset(self, group: RankGroup, batch_size: int) -> Any:
        """Return batches of all rows of a dataset."""
        if self.graph is None:
            return make_creator_dataset(self.creator, self.config, batch_size)
        dataset = self.graph.load()
        return dataset if self.graph.is_batched else dataset.batch(batch_size)

    def make_training_dataset(self, group: RankGroup, batch_size: int) -> Any:
        """Return the batches of a rank, as many as other ranks have."""
        dataset = self.make_dataset(group, batch_size)
        count = int(dataset.cardinality().numpy())
        total = int(group.add_arrays([np.array([count], "float64")], "batches")[0][0])
        if total != count * group.size:
            raise ValueError(
                f"the data creator returned {count} batches in rank {group.rank}, and another "
                "number in other ranks; it must return the same batches in all ranks"
            )
        return take_share(dataset, group.rank, group.size)

    def make_evaluation_dataset(
        self, group: RankGroup, batch_size: int, steps: int | None = None
    ) -> Any:
        """Return batches of a rank, of all rows of the first steps."""
        dataset = self.make_dataset(group, batch_size)
        dataset = dataset if steps is None else dataset.take(steps)
        return take_all_rows(dataset, group.rank, group.size)


@dataclass(frozen=True)
class FitTask:
    """Arguments of a call of ``fit``; ``batch_size`` is that of all ranks together."""

    model: KerasModel
    data: DataSource
    validation: DataSource | None = None
    epochs: int = 1
    initial_epoch: int = 0
    batch_size: int = 32
    verbose: int = 0
    callbacks: Sequence[Any] = ()
    class_weight: Mapping[int, float] | None = None
    steps_per_epoch: int | None = None
    validation_steps: int | None = None
    validation_freq: Any = 1
    shuffle: bool = True
    seed: int = 0
    interval: int = 0
    keeps_all: bool = False


@dataclass(frozen=True)
class EvaluateTask:
    """Arguments of a call of ``evaluate``; ``batch_size`` is that of all ranks together."""

    model: KerasModel
    data: DataSource
    batch_size: int = 32
    steps: int | None = None
    verbose: int = 0


@dataclass(frozen=True)
class FitOutcome:
    """Result of the training: weights, values of each epoch, and an example of the inputs."""

    weights: bytes
    history: Mapping[str, list[float]]
    inputs: Any


def fit_rank(pieces: Sequence[Any] | None, task: FitTask) -> FitOutcome | None:
    """Train the model in one rank; rank 0 returns the outcome."""
    group = _connect(task.model, task.seed)
    arrays = join_pieces(pieces[: task.data.pieces]) if pieces and task.data.pieces else None
    dataset: Any = None
    with mark_permanent_errors():
        if arrays is None:
            dataset = task.data.make_training_dataset(group, task.batch_size)
        inputs = read_inputs(dataset) if arrays is None else tuple(each[:1] for each in arrays[0])
        model = task.model.build(inputs)
        if group.size > 1 and (loss := find_loss_fault(model)):
            raise ValueError(
                f"the loss {loss} is not a mean over rows, by which ranks are averaged"
            )
    _synchronize(model, group)
    share_steps(model, group)
    folder = CheckpointFolder(os.environ["HYPERPLANE_CHECKPOINTS"])
    progress = FitProgress(group.rank == 0, task.keeps_all, task.interval, epoch=task.initial_epoch)
    epochs = task.epochs
    # Only rank 0 reads checkpoints: without a shared folder, the other ranks do not have them.
    found = group.broadcast(folder.read_newest() if group.rank == 0 else b"")
    if found and progress.resume(found):
        epochs = progress.epoch
    epoch = progress.epoch
    callbacks = choose_callbacks(task.callbacks, group.rank, bool(found))
    last = [make_stop_callback(group)] if group.size > 1 else []
    variables = RankVariables(model, group)
    last.append(make_checkpoint_callback(folder, callbacks, progress, variables))
    steps = task.steps_per_epoch
    seeds = make_seed_callback(task.seed, group.rank)
    callbacks = [seeds, *callbacks, *last]
    with mark_errors_of_first_step(callbacks):
        if arrays is not None:
            size = task.batch_size // group.size
            plan = BatchPlan(task.data.rows, group.rank, size, task.shuffle, task.seed, steps)
            values = join_arrays(task.model, model, arrays)
            dataset = make_array_dataset(values, plan, epoch, task.class_weight)
            padding = make_padding_callback(plan, group.weight, epoch)
            callbacks[1:1] = [padding] if padding else []
            steps = plan.steps_per_epoch
        else:
            before = epoch - task.initial_epoch
            if steps is not None and before:
                start = make_start_callback(find_start(dataset, steps, before))
                dataset = begin_at(dataset, start.first)
                callbacks[1:1] = [start]
            if task.class_weight is not None:
                dataset = weigh_dataset(dataset, task.class_weight)
        verbose = task.verbose if group.rank == 0 else 0
        resumed: Any = callbacks
        if progress.step:
            build_metrics(model, dataset)
            resumed = make_callback_list(
                callbacks, progress.step, add_progbar=verbose != 0, verbose=verbose,
                epochs=epochs, steps=steps, model=model,
            )  # fmt: skip
        model.fit(
            dataset,
            epochs=epochs,
            initial_epoch=epoch,
            verbose=verbose,
            shuffle=False,
            callbacks=resumed,
            validation_data=_prepare_validation(task, group, model, pieces),
            validation_freq=task.validation_freq,
            steps_per_epoch=steps,
        )
    if group.rank > 0:
        return None
    return FitOutcome(save_weights(model), progress.history, inputs)


def evaluate_rank(pieces: Sequence[Any] | None, task: EvaluateTask) -> dict[str, float]:
    """Return the metrics of the rows of all ranks."""
    group = _connect(task.model, 0)
    arrays = join_pieces(pieces) if pieces else None
    callbacks: list[Any] = []
    with mark_errors_of_first_step(callbacks):
        if arrays is not None:
            inputs = tuple(each[:1] for each in arrays[0])
        else:
            dataset = task.data.make_evaluation_dataset(group, task.batch_size, task.steps)
            inputs = read_inputs(dataset)
        model = task.model.build(inputs)
        share_steps(model, group)
        if arrays is not None:
            values = join_arrays(task.model, model, arrays)
            dataset = _make_plain_dataset(values, task.batch_size // group.size, task.steps)
        verbose = task.verbose if group.rank == 0 else 0
        results = model.evaluate(dataset, verbose=verbose, return_dict=True, callbacks=callbacks)
    return {name: float(value) for name, value in results.items()}


def _connect(model: KerasModel, seed: int) -> RankGroup:
    keras: Any = need("keras", "tensorflow")
    config = model.config
    threads = int(config.get("intra_op_parallelism", 1))
    group = RankGroup(threads, int(config.get("inter_op_parallelism", 2)))
    keras.utils.set_random_seed(seed)
    return group


def _synchronize(model: Any, group: RankGroup) -> None:
    """Give all ranks the weights of rank 0, which a creator may draw without a seed."""
    variables = [*model.variables, *model.optimizer.variables]
    zero = group.rank > 0
    values = [np.zeros_like(each.numpy()) if zero else each.numpy() for each in variables]
    for variable, value in zip(variables, group.add_arrays(values, "weights"), strict=True):
        variable.assign(value)


def _prepare_validation(
    task: FitTask, group: RankGroup, model: Any, pieces: Sequence[Any] | None
) -> Any:
    """Return the batches of this rank in each validation; None if there is none."""
    source, steps = task.validation, task.validation_steps
    if source is None:
        return None
    if not source.pieces:
        dataset = source.make_evaluation_dataset(group, task.batch_size, steps)
        read_inputs(dataset)
        return dataset
    values = join_arrays(task.model, model, join_pieces((pieces or [])[-source.pieces :]))
    return _make_plain_dataset(values, task.batch_size // group.size, steps)


def _make_plain_dataset(values: tuple[Any, ...], batch_size: int, steps: int | None) -> Any:
    tf: Any = need("tensorflow", "tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices(values).batch(batch_size)
    return dataset if steps is None else dataset.take(steps)
