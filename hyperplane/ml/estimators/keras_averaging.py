"""Averages over the ranks of a gang inside ``fit`` and ``evaluate`` of a Keras model.

``Model.fit`` of Keras 3 fails under ``MultiWorkerMirroredStrategy``. Here each rank calls ``fit``
on its own rows, without a strategy, and three methods of the model and of its optimizer are
replaced on the instance: ``apply`` of each optimizer averages the gradients over the ranks first,
``train_step`` records the number of rows of the batch, by which gradients are weighted, and
``_get_metrics_result_or_logs`` adds the states of the metrics of all ranks at the end of an epoch.

A loss with a mask is a mean over the values that are not masked, of which ranks have different
numbers: within ``train_step`` it is scaled so that the average by rows is the mean over all ranks.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.ml.estimators.keras_model import compute_checksum

#: Number of the group of all ranks; that of TensorFlow's own strategies begins at 1.
_GROUP_KEY = 27182
#: Seconds after which an operation that waits for another rank fails. When a rank is lost, the gang
#: ends the others within seconds; this limit is for ranks that run different operations.
_TIMEOUT_SECONDS = 1800.0


class RankGroup:
    """All ranks of a gang, connected by collective operations of TensorFlow.

    Parameters
    ----------
    threads : int
        Threads of an operation in this process.
    parallel : int
        Operations that run at the same time in this process.
    """

    def __init__(self, threads: int = 1, parallel: int = 2) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._tf: Any = need("tensorflow", "tensorflow")
        self._tf.config.threading.set_intra_op_parallelism_threads(threads)
        self._tf.config.threading.set_inter_op_parallelism_threads(parallel)
        # The strategy reads TF_CONFIG, starts the servers of the collective operations and waits
        # for those of the other ranks. Nothing else of it is used.
        self._strategy = (
            self._tf.distribute.MultiWorkerMirroredStrategy() if self.size > 1 else None
        )
        #: Weight of the rows of this rank in the current step: 0 if it has none left.
        self.weight: Any = self._tf.Variable(1.0, trainable=False)
        #: 1 if a callback of this rank has stopped training within the epoch; sum over all ranks.
        self.stop: Any = self._tf.Variable(0.0, trainable=False)
        self.stops: Any = self._tf.Variable(0.0, trainable=False)

    def add(self, tensor: Any, purpose: str) -> Any:
        """Return the sum of a tensor over the ranks.

        Ranks agree on an operation by its key. It depends on purpose, type and shape alone: a
        number in the order of tracing would differ between ranks that trace a step again because
        of another size of its last batch.
        """
        if self.size == 1:
            return tensor
        name = f"{purpose} {tensor.dtype.name} {tuple(tensor.shape)}"
        return self._tf.raw_ops.CollectiveReduceV2(
            input=tensor,
            group_size=self.size,
            group_key=_GROUP_KEY,
            instance_key=zlib.crc32(name.encode()) & 0x7FFF_FFFF,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
            communication_hint="ring",
            timeout_seconds=_TIMEOUT_SECONDS,
        )

    def add_arrays(self, arrays: Sequence[Any], purpose: str, divisor: int = 1) -> list[np.ndarray]:
        """Return the sums of arrays over the ranks, in one operation, in double precision.

        They are divided by ``divisor`` before they get the types of the arrays again.
        """
        arrays = [np.asarray(array) for array in arrays]
        # The collective operation of no values ends the process with SIGSEGV (TensorFlow 2.21).
        if self.size == 1 or not sum(array.size for array in arrays):
            return arrays
        flat = np.concatenate([array.reshape(-1).astype("float64") for array in arrays])
        total = self.add(self._tf.constant(flat), purpose).numpy() / divisor
        parts = np.split(total, np.cumsum([array.size for array in arrays])[:-1])
        return [
            part.reshape(array.shape).astype(array.dtype)
            for part, array in zip(parts, arrays, strict=True)
        ]

    def broadcast(self, data: bytes) -> bytes:
        """Return the bytes that rank 0 has."""
        if self.size == 1:
            return data
        mine = np.frombuffer(data if self.rank == 0 else b"", np.uint8).astype("int32")
        length = int(self.add(self._tf.constant(len(mine), "int64"), "length").numpy())
        if not length:
            return b""
        values = mine if self.rank == 0 else np.zeros(length, "int32")
        total: np.ndarray = self.add(self._tf.constant(values), "bytes").numpy()
        return total.astype(np.uint8).tobytes()


def average_gradients(
    group: RankGroup, gradients: Sequence[Any], shapes: Sequence[Any], rows: Any, number: int = 0
) -> list[Any]:
    """Return gradients averaged over the ranks, weighted by the rows of their batches.

    Gradients of one type are sent as one tensor, with the flag of a rank that stops. A variable
    without a gradient keeps None; sparse gradients, such as those of embeddings, are sent as dense
    ones. ``shapes`` are those of the variables, which sparse gradients lack; ``number`` is that of
    the optimizer: operations of two must have different keys.
    """
    tf: Any = need("tensorflow", "tensorflow")
    averaged = list(gradients)
    places: dict[str, list[int]] = {}
    for place, gradient in enumerate(gradients):
        if gradient is not None:
            averaged[place] = tf.convert_to_tensor(gradient)
            places.setdefault(averaged[place].dtype.name, []).append(place)
    for dtype, chosen in places.items():
        # Half precision would lose the count of rows, and digits of the sum.
        wide = tf.float64 if dtype == "float64" else tf.float32
        count = tf.cast(rows, wide)
        flat = [tf.reshape(tf.cast(averaged[place], wide), [-1]) * count for place in chosen]
        last = tf.stack([count, tf.cast(group.stop, wide)])
        total = group.add(tf.concat([*flat, last], axis=0), f"gradients {number} {dtype}")
        group.stops.assign(tf.cast(total[-1], tf.float32))
        # A step in which no rank has rows changes nothing.
        mean = tf.math.divide_no_nan(total[:-2], total[-2])
        parts = tf.split(mean, [int(np.prod(shapes[place])) for place in chosen])
        for place, part in zip(chosen, parts, strict=True):
            averaged[place] = tf.cast(tf.reshape(part, shapes[place]), averaged[place].dtype)
    return averaged


def share_steps(model: Any, group: RankGroup) -> None:
    """Make ``fit`` and ``evaluate`` of a compiled model average over the ranks."""
    if group.size == 1:
        return
    keras: Any = need("keras", "tensorflow")
    rows: list[Any] = [1]
    train_step = model.train_step

    def count_and_train(data: Any) -> Any:
        first = next(each for each in keras.tree.flatten(data) if each is not None)
        count = keras.ops.cast(keras.ops.shape(first)[0], "float32")
        rows[0] = count * group.weight
        with scale_masked_losses(group, count):
            return train_step(data)

    # XLA has no kernels of the collective operations for CPUs.
    model.jit_compile = False
    # Callbacks mark steps without rows, and stop in the same step on all ranks.
    model.steps_per_execution = 1
    model.train_step = count_and_train
    for number, optimizer in enumerate(list_optimizers(model)):
        optimizer.apply = _make_apply(optimizer, group, rows, number)
    _share_metrics(model, group)


@contextmanager
def scale_masked_losses(group: RankGroup, rows: Any) -> Iterator[None]:
    """Scale the losses with masks that a step computes in the block.

    A rank with the mean ``m`` of ``v`` values in ``n`` of all ``N`` rows contributes ``n m / N`` to
    the average. For a mean over the values of all ranks, whose number is ``V``, this must be
    ``v m / V``.
    """
    tf: Any = need("tensorflow", "tensorflow")
    losses: Any = importlib.import_module("keras.src.losses.loss")
    apply_mask, number = losses.apply_mask, 0

    def apply_scaled_mask(weights: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
        nonlocal number
        weights = apply_mask(weights, mask, dtype=dtype, reduction=reduction)
        if mask is None or reduction not in ("mean", "sum_over_batch_size"):
            return weights  # of a metric, whose states are sums and counts
        values = tf.reduce_sum(tf.cast(tf.cast(mask, "bool"), "float32")) * group.weight
        total = group.add(tf.stack([values, rows * group.weight]), f"mask {number}")
        number += 1
        factor = tf.math.divide_no_nan(values * total[1], rows * total[0])
        return weights * tf.cast(tf.stop_gradient(factor), weights.dtype)

    losses.apply_mask = apply_scaled_mask
    try:
        yield
    finally:
        losses.apply_mask = apply_mask


def list_optimizers(model: Any) -> list[Any]:
    """Return the optimizer of a model, and others that are attributes of it, as in GANs."""
    keras: Any = need("keras", "tensorflow")
    values = [model.optimizer]
    for value in vars(model).values():
        values += value if isinstance(value, list | tuple) else [value]
        values += value.values() if isinstance(value, dict) else []
    found = {id(each): each for each in values if isinstance(each, keras.optimizers.Optimizer)}
    return list(found.values())


def _make_apply(
    optimizer: Any, group: RankGroup, rows: list[Any], number: int
) -> Callable[..., Any]:
    apply = optimizer.apply

    def average_and_apply(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        variables = trainable_variables
        if variables is None:  # those of the first call
            inner = getattr(optimizer, "inner_optimizer", optimizer)
            variables = inner._trainable_variables
        shapes = [tuple(variable.shape) for variable in variables]
        averaged = average_gradients(group, list(grads), shapes, rows[0], number)
        return apply(averaged, trainable_variables)

    return average_and_apply


def _share_metrics(model: Any, group: RankGroup) -> None:
    """Compute the metrics at the end of an epoch from the rows of all ranks.

    The states of the metrics of Keras are sums and counts, so they are added. Values that a
    ``train_step`` returns beside them are averaged.
    """
    read_logs = model._get_metrics_result_or_logs
    statistics = MovingStatistics(model)

    def read_shared_logs(logs: Any) -> Any:
        variables = [variable for metric in model.metrics for variable in metric.variables]
        totals = group.add_arrays([variable.numpy() for variable in variables], "metrics")
        for variable, total in zip(variables, totals, strict=True):
            variable.assign(total)
        statistics.average(group)
        results = read_logs(logs)
        if results is not logs or not isinstance(logs, Mapping):
            return results
        values = [np.asarray(value, dtype="float64") for value in logs.values()]
        sums = group.add_arrays(values, "logs")
        return {name: total / group.size for name, total in zip(logs, sums, strict=True)}

    model._get_metrics_result_or_logs = read_shared_logs


class MovingStatistics:
    """Variables of a model that training changes without gradients, such as moving averages.

    Those of batch normalization differ between ranks, because each normalizes its own batch.
    Weights of frozen layers are among the variables, and do not change.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._sums: dict[int, int] = {}
        for variable in self._list_variables():
            self._sums[id(variable)] = compute_checksum(variable)

    def average(self, group: RankGroup) -> None:
        """Average the variables that changed on a rank since the last call."""
        variables = self._list_variables()
        sums = [compute_checksum(variable) for variable in variables]
        flags = [
            self._sums.get(id(variable)) != new
            for variable, new in zip(variables, sums, strict=True)
        ]
        changed = group.add_arrays([np.array(flags, "float64")], "changes")[0]
        chosen = [variable for variable, flag in zip(variables, changed, strict=True) if flag]
        values = [variable.numpy() for variable in chosen]
        means = group.add_arrays(values, "statistics", divisor=group.size)
        for variable, mean in zip(chosen, means, strict=True):
            variable.assign(mean)
            self._sums[id(variable)] = compute_checksum(variable)

    def _list_variables(self) -> list[Any]:
        metrics = {id(each) for metric in self._model.metrics for each in metric.variables}
        return [
            variable
            for variable in self._model.non_trainable_variables
            if id(variable) not in metrics and str(variable.dtype).startswith(("float", "bfloat"))
        ]
