"""Models and rows of the tests of estimators of Keras."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

#: Rows of two ranks: 36 and 37, so that the first rank has none left in the last step.
ROWS = 73


def make_rows() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and labels of a linear function."""
    x = np.random.default_rng(0).normal(size=(ROWS, 3)).astype("float32")
    return x, (x @ np.array([[1.0], [-2.0], [0.5]]) + 1).astype("float32")


def make_model(optimizer: Any = "sgd", *layers: Any) -> Any:
    """Return a compiled model of three inputs, the same for each call."""
    import keras

    keras.utils.set_random_seed(3)
    inner = [keras.layers.Dense(4, activation="tanh"), *layers, keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *inner])
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"], jit_compile=False)
    return model


def create_dataset(config: dict[str, Any], batch_size: int) -> Any:
    """Return batches of the rows, through a function of Python."""
    import tensorflow as tf

    x, y = make_rows()

    def double(values: Any) -> Any:
        doubled = tf.numpy_function(lambda array: 2 * array, [values], tf.float32)
        return tf.ensure_shape(doubled, (3,))

    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    return dataset.map(lambda a, b: (double(a), b)).batch(batch_size * config.get("times", 1))


def make_killer(folder: str) -> Any:
    """Return a callback that kills the worker of rank 1 in the second epoch, once."""
    import keras

    class Killer(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            mark = Path(folder, "killed")
            if os.environ["RANK"] == "1" and self.epoch == 1 and batch == 1 and not mark.exists():
                mark.touch()
                os.kill(os.getppid(), signal.SIGKILL)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch
            if os.environ["RANK"] == "0":
                with Path(folder, "epochs").open("a") as file:
                    file.write(f"{epoch}\n")

    return Killer()


def create_wide_model(config: dict[str, Any]) -> Any:
    """Return a model with one input of three columns; the seed of the process gives its weights."""
    import keras

    inner = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *inner])
    model.compile(keras.optimizers.Adam(config["lr"]), loss="mse", metrics=["mae"])
    return model


def make_classifier() -> Any:
    """Return a model of two classes, with a loss and a metric that Keras does not know."""
    import keras

    class FirstClassAUC(keras.metrics.AUC):  # type: ignore[misc]
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            return super().update_state(1 - y_true, y_pred[:, :1], sample_weight)

    def compute_entropy(labels: Any, predictions: Any) -> Any:
        return keras.losses.sparse_categorical_crossentropy(labels, predictions)

    keras.utils.set_random_seed(5)
    layers = [keras.layers.Input((3,)), keras.layers.Dense(2, activation="softmax")]
    model = keras.Sequential(layers)
    metrics = [FirstClassAUC(name="auc")]
    model.compile("adam", loss=compute_entropy, metrics=metrics, jit_compile=False)
    return model
