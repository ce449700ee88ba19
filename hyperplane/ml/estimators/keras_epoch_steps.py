"""Training within an epoch of a Keras model: what ranks do not share, and steps already taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.ml.estimators.keras_averaging import RankGroup


class RankVariables:
    """Variables that differ between ranks within an epoch.

    They are the states of metrics, moving averages, the seeds of random layers, and the request of
    a rank to stop. Weights and optimizers are equal in all ranks.

    Parameters
    ----------
    model : keras.Model
        A model that is built and compiled.
    group : RankGroup
        All ranks.
    """

    def __init__(self, model: Any, group: RankGroup) -> None:
        self._model, self._group = model, group

    def gather(self, logs: Mapping[str, float]) -> np.ndarray:
        """Return a row for each rank, in all ranks, which call this at the same step.

        ``logs`` are the values of the step, which a model without metrics returns for the epoch.
        """
        parts = [each.numpy().reshape(-1) for each in self._list_variables()]
        mine = np.concatenate([*parts, list(logs.values())]).astype("float64")
        rows = np.zeros((self._group.size, len(mine)))
        rows[self._group.rank] = mine
        return self._group.add_arrays([rows], "variables of ranks")[0]

    def restore(self, rows: np.ndarray, names: Sequence[str]) -> dict[str, float]:
        """Set the variables of this rank; return its values of the step, whose names are given."""
        mine, start = rows[self._group.rank], 0
        variables = self._list_variables()
        count = sum(int(np.prod(each.shape)) for each in variables)
        if count + len(names) != len(mine):
            raise ValueError(
                f"the checkpoint has {len(mine) - len(names)} values of metrics and moving "
                f"averages; the model has {count}"
            )
        for variable in variables:
            value = variable.numpy()
            part = mine[start : start + value.size]
            variable.assign(part.reshape(value.shape).astype(value.dtype))
            start += value.size
        return dict(zip(names, map(float, mine[start:]), strict=True))

    def _list_variables(self) -> list[Any]:
        metrics = [each for metric in self._model.metrics for each in metric.variables]
        others = [*metrics, *self._model.non_trainable_variables, self._group.stop]
        return list({id(each): each for each in others}.values())


def build_metrics(model: Any, dataset: Any) -> None:
    """Create the variables of metrics, which Keras creates in its first step."""
    model._symbolic_build(data_batch=next(iter(dataset.take(1))))


def make_callback_list(callbacks: Sequence[Any], skipped: int, **options: Any) -> Any:
    """Return the callbacks of a call of ``fit`` that does not call them for the first steps.

    They have seen these steps of its first epoch before a restart.
    """
    keras: Any = need("keras", "tensorflow")

    class ResumedCallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]
        _left = skipped

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch >= self._left:
                self._left = 0
                super().on_train_batch_begin(batch, logs)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch >= self._left:
                super().on_train_batch_end(batch, logs)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._left = 0
            super().on_epoch_end(epoch, logs)

    return ResumedCallbackList(callbacks, add_history=True, **options)


def skip_steps(model: Any, count: int, get_logs: Callable[[], Mapping[str, float]]) -> None:
    """Let the next steps of ``fit`` read their batches only, and return the values of the last."""
    train, left = model.train_function, count

    def read_batches(iterator: Any) -> Any:
        nonlocal left
        if left <= 0:
            model.train_function = train
            return train(iterator)
        for _ in range(min(left, model.steps_per_execution)):
            next(iterator)
            left -= 1
        return dict(get_logs())

    model.train_function = read_batches
