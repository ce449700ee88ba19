"""Batches of a rank for a Keras model, from arrays or from a ``tf.data.Dataset``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.ml.estimators.keras_model import KerasModel
from hyperplane.ml.estimators.partition_reader import Arrays
from hyperplane.ml.estimators.training_data import count_steps, iterate_batches, order_rows


@dataclass(frozen=True)
class BatchPlan:
    """Which rows a rank uses in each step.

    Parameters
    ----------
    rows : tuple of int
        Rows of each rank.
    rank : int
        This rank.
    batch_size : int
        Rows of a step of this rank.
    shuffle : bool
        Whether to permute the rows of the rank in each epoch.
    seed : int
        Seed of the permutations.
    steps : int, optional
        Steps of an epoch of Keras; the next epoch continues after them.
    """

    rows: tuple[int, ...]
    rank: int
    batch_size: int
    shuffle: bool = True
    seed: int = 0
    steps: int | None = None

    @property
    def steps_of_pass(self) -> int:
        """Steps in which all rows are used once."""
        return count_steps(self.rows, self.batch_size)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch of Keras."""
        return self.steps or self.steps_of_pass

    def has_rows(self, step: int) -> bool:
        """Return whether this rank has rows left in a step, counted from the first epoch."""
        return step % self.steps_of_pass * self.batch_size < self.rows[self.rank]

    def list_steps(self, first: int) -> Iterator[np.ndarray]:
        """Yield the rows of each step without end; the first row where none are left."""
        number, skipped = divmod(first, self.steps_of_pass)
        while True:
            count = self.rows[self.rank]
            order = order_rows(count, self.shuffle, self.seed, number, self.rank)
            for step, chosen in enumerate(
                iterate_batches(order, self.batch_size, self.steps_of_pass)
            ):
                if step >= skipped:
                    yield chosen if len(chosen) else order[:1]
            number, skipped = number + 1, 0


def join_arrays(definition: KerasModel, model: Any, arrays: Arrays) -> tuple[Any, ...]:
    """Return inputs and labels in the form that the model has."""
    inputs = definition.join_inputs(model, arrays[0])
    return (inputs,) if arrays[1] is None else (inputs, definition.join_labels(model, arrays[1]))


def make_array_dataset(
    values: tuple[Any, ...], plan: BatchPlan, epoch: int, weights: Mapping[int, float] | None
) -> Any:
    """Return the batches of a rank from an epoch on, without end."""
    tf: Any = need("tensorflow", "tensorflow")
    if weights is not None:
        values = (*values, weigh_classes(values[1], weights))
    flat = tf.nest.flatten(values)
    types = [tf.TensorSpec((None, *each.shape[1:]), each.dtype) for each in flat]

    def generate() -> Iterator[Any]:
        for chosen in plan.list_steps(epoch * plan.steps_per_epoch):
            yield tf.nest.pack_sequence_as(values, [each[chosen] for each in flat])

    signature = tf.nest.pack_sequence_as(values, types)
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


def weigh_classes(labels: Any, weights: Mapping[int, float]) -> np.ndarray:
    """Return the weight of each row by its class, as Keras has it: other classes weigh 1.

    Examples
    --------
    >>> weigh_classes(np.array([0, 1, 2]), {1: 3.0})
    array([1., 3., 1.], dtype=float32)
    """
    if isinstance(labels, tuple | dict):
        raise ValueError("class_weight needs a model with a single label")
    labels = np.asarray(labels)
    is_one_hot = labels.ndim > 1 and labels.shape[-1] > 1
    classes = labels.argmax(axis=-1) if is_one_hot else labels.reshape(len(labels)).astype(int)
    return np.array([weights.get(int(each), 1.0) for each in classes], dtype="float32")


def weigh_dataset(dataset: Any, weights: Mapping[int, float]) -> Any:
    """Return a dataset with the weight of each row by its class."""
    tf: Any = need("tensorflow", "tensorflow")

    def add_weights(x: Any, y: Any, own: Any = None) -> Any:
        found = tf.numpy_function(lambda labels: weigh_classes(labels, weights), [y], tf.float32)
        found.set_shape((None,))
        if own is not None:
            found *= tf.reshape(tf.cast(own, tf.float32), [-1])
        return x, y, found

    return dataset.map(add_weights)


def make_creator_dataset(
    creator: Callable[..., Any] | None, config: Mapping[str, Any], batch_size: int
) -> Any:
    """Return the dataset of a function of the user."""
    tf: Any = need("tensorflow", "tensorflow")
    dataset = None if creator is None else creator(dict(config), batch_size)
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"the data creator returned an object of type {type(dataset).__name__}; "
            "expected a tf.data.Dataset"
        )
    return dataset


def take_share(dataset: Any, rank: int, size: int) -> Any:
    """Return the rows of a rank from each batch of a dataset.

    Of a batch of m rows, rank r gets the rows from ``r * m // n`` to ``(r + 1) * m // n``. A batch
    with fewer rows than ranks is left out, because all ranks take the same number of steps.
    """
    tf: Any = need("tensorflow", "tensorflow")
    if size == 1:
        return dataset
    enough = dataset.filter(lambda *values: _count_rows(tf, values) >= size)
    return enough.map(lambda *values: _divide(tf, values, rank, size))


def take_all_rows(dataset: Any, rank: int, size: int) -> Any:
    """Return the rows of a rank, without leaving out any: evaluations have no common steps.

    The part of a rank changes from batch to batch, so that batches of one row go to all in turn.
    """
    tf: Any = need("tensorflow", "tensorflow")
    if size == 1:
        return dataset

    def divide(index: Any, values: Any) -> Any:
        values = values if isinstance(values, tuple) else (values,)
        return _divide(tf, values, tf.cast((rank + index) % size, tf.int32), size)

    shares = dataset.enumerate().map(divide)
    return shares.filter(lambda *values: _count_rows(tf, values) > 0)


def find_start(dataset: Any, steps: int, epochs: int) -> int:
    """Return the batch with which Keras begins an epoch of some steps, after some epochs.

    It continues a dataset in the next epoch, and begins it again when it is over.
    """
    tf: Any = need("tensorflow", "tensorflow")
    before, count = steps * epochs, int(dataset.cardinality().numpy())
    if count == tf.data.INFINITE_CARDINALITY:
        return before
    if count < 0:  # unknown
        first = dataset.take(before + 1)
        count = int(first.reduce(np.int64(0), lambda number, *_: number + 1).numpy())
    start = 0
    for _ in range(epochs):
        start = start + steps if start + steps < count else 0
    return start


def begin_at(dataset: Any, start: Any) -> Any:
    """Return a dataset whose iterations begin at the batch that a variable has at that moment."""
    tf: Any = need("tensorflow", "tensorflow")
    return tf.data.Dataset.range(1).flat_map(lambda _: dataset.skip(start))


def _count_rows(tf: Any, values: Any) -> Any:
    return tf.shape(tf.nest.flatten(values)[0])[0]


def _divide(tf: Any, values: tuple[Any, ...], rank: Any, size: int) -> Any:
    rows = _count_rows(tf, values)
    first, last = rank * rows // size, (rank + 1) * rows // size
    parts = tf.nest.map_structure(lambda each: each[first:last], values)
    return parts if len(parts) > 1 else parts[0]


def read_inputs(dataset: Any) -> Any:
    """Return the inputs of the first row of a dataset: a tuple of arrays, or a dictionary.

    They determine the shapes of a model without an input layer.
    """
    tf: Any = need("tensorflow", "tensorflow")
    element = next(iter(dataset.take(1)), None)
    if element is None:
        raise ValueError(
            "a rank has no rows of the dataset; expected batches with a row for each rank"
        )
    first = element[0] if isinstance(element, tuple) else element
    row = tf.nest.map_structure(lambda each: each[:1].numpy(), first)
    return row if isinstance(row, dict | tuple) else (row,)
