"""Callbacks in a rank: seeds, steps without rows, and the same last step on all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.core.permanent_errors import mark_permanent_errors
from hyperplane.ml.estimators.keras_averaging import RankGroup
from hyperplane.ml.estimators.keras_batches import BatchPlan

#: Callbacks of Keras that write files: only rank 0 has them.
_WRITERS = ("CSVLogger", "ModelCheckpoint", "OrbaxCheckpoint", "RemoteMonitor", "TensorBoard")


def choose_callbacks(callbacks: Sequence[Any], rank: int, is_restart: bool) -> list[Any]:
    """Return all callbacks for rank 0, and for others those that do not write files.

    After a restart, a ``CSVLogger`` appends to the rows of earlier epochs.
    """
    chosen = []
    for callback in callbacks:
        names = [base.__name__ for base in type(callback).__mro__]
        if is_restart and "CSVLogger" in names:
            callback.append = True
        if rank == 0 or not any(name in _WRITERS for name in names):
            chosen.append(callback)
    return chosen


@contextmanager
def mark_errors_of_first_step(callbacks: list[Any]) -> Iterator[None]:
    """Mark errors before the end of the first step, which would occur again after a restart.

    The callback that observes the step becomes the first of the list.
    """
    keras: Any = need("keras", "tensorflow")

    class FirstStepCallback(keras.callbacks.Callback):  # type: ignore[misc]
        is_finished = False

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.is_finished = True

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            self.is_finished = True

    first = FirstStepCallback()
    callbacks.insert(0, first)
    try:
        yield
    except Exception:
        with nullcontext() if first.is_finished else mark_permanent_errors():
            raise


def make_padding_callback(plan: BatchPlan, weight: Any, epoch: int) -> Any:
    """Return a callback with which steps without rows have no effect; None if there are none.

    Keras cannot run a step without rows: the mean loss is not a number. Such a step runs with
    one row, its gradient has the weight 0, and the metrics and moving averages that it changed
    are restored.
    """
    if plan.has_rows(plan.steps_of_pass - 1):
        return None
    keras: Any = need("keras", "tensorflow")

    class PaddingCallback(keras.callbacks.Callback):  # type: ignore[misc]
        _before: list[tuple[Any, np.ndarray]] | None = None
        _epoch = epoch

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if not plan.has_rows(self._epoch * plan.steps_per_epoch + batch):
                metrics = [each for metric in self.model.metrics for each in metric.variables]
                changed = [*metrics, *self.model.non_trainable_variables]
                self._before = [(variable, variable.numpy()) for variable in changed]
                weight.assign(0.0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self._before is not None:
                for variable, value in self._before:
                    variable.assign(value)
                weight.assign(1.0)
                self._before = None

    return PaddingCallback()


def make_seed_callback(seed: int, rank: int) -> Any:
    """Return a callback that sets the seeds of dropout and the like by epoch and rank.

    A restarted rank continues with the numbers that it would have had, and ranks have different
    ones.
    """
    keras: Any = need("keras", "tensorflow")

    class SeedCallback(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            states = [
                variable
                for variable in self.model.non_trainable_variables
                if variable.path.endswith("seed_generator_state")
            ]
            for number, variable in enumerate(states):
                drawn = np.random.default_rng([seed, epoch, rank, number])
                values = drawn.integers(0, 2**31, size=variable.shape)
                variable.assign(values.astype(variable.dtype))

    return SeedCallback()


def make_start_callback(number: int) -> Any:
    """Return a callback with the variable ``first``, the first batch of iterations of a dataset.

    It is a number for the iteration that begins the training, and 0 for later ones.
    """
    keras: Any = need("keras", "tensorflow")
    tf: Any = need("tensorflow", "tensorflow")

    class StartCallback(keras.callbacks.Callback):  # type: ignore[misc]
        first = tf.Variable(number, dtype="int64", trainable=False)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.first.assign(0)

    return StartCallback()


def make_stop_callback(group: RankGroup) -> Any:
    """Return the callback that stops all ranks in the same step when a callback stops one.

    ``TerminateOnNaN`` sees the loss of its rank, and a callback of the user may read a clock. If a
    rank stopped alone, the others would wait for its gradients. It therefore runs one more step,
    which passes the request to the others. This callback runs after those of the user.
    """
    keras: Any = need("keras", "tensorflow")

    class StopCallback(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if float(group.stops.numpy()) > 0:
                self.model.stop_training = True
            elif self.model.stop_training:
                group.stop.assign(1.0)
                self.model.stop_training = False

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            wants = bool(self.model.stop_training) or float(group.stop.numpy()) > 0
            total = group.add_arrays([np.array([float(wants)])], "stop")[0]
            self.model.stop_training = bool(total[0] > 0)

    return StopCallback()
