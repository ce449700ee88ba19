"""Models of many forms for two ranks, each the same for each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def make_sequence(make_layers: Callable[[], list[Any]], **options: Any) -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Input((3,)), *make_layers()])
    model.compile(**{"optimizer": "adam", "loss": "mse", "jit_compile": False, **options})
    return model


def make_small(**options: Any) -> Any:
    def make_layers() -> list[Any]:
        return [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]

    return make_sequence(make_layers, **options)


def make_random() -> Any:
    """Return a model with dropout."""

    def make_layers() -> list[Any]:
        dense = keras.layers.Dense(4, activation="tanh")
        return [dense, keras.layers.Dropout(0.3), keras.layers.Dense(1)]

    return make_sequence(make_layers)


def make_noisy() -> Any:
    """Return a model with dropout, moving averages and a metric."""

    def make_layers() -> list[Any]:
        inner = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dropout(0.3)]
        return [*inner, keras.layers.BatchNormalization(), keras.layers.Dense(1)]

    return make_sequence(make_layers, metrics=["mae"])


def make_mixed() -> Any:
    """Return a model with scaled losses."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return make_small(optimizer=keras.optimizers.SGD(0.05))
    finally:
        keras.config.set_dtype_policy("float32")


def make_named() -> Any:
    """Return a model with an embedding, named inputs and outputs, not in the order of letters."""
    keras.utils.set_random_seed(3)
    user, item = keras.layers.Input((1,), name="user"), keras.layers.Input((3,), name="item")
    known = keras.layers.Flatten()(keras.layers.Embedding(5, 2)(user))
    joined = keras.layers.Concatenate()([known, item])
    outputs = {"z": keras.layers.Dense(1)(joined), "a": keras.layers.Dense(1)(joined)}
    model = keras.Model({"user": user, "item": item}, outputs)
    model.compile("sgd", {"z": "mse", "a": "mae"}, jit_compile=False)
    return model


def make_pair(config: dict[str, Any]) -> Any:
    """Return a model that trains two layers, each with its optimizer."""

    class Pair(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = keras.layers.Dense(1), keras.layers.Dense(1)
            self.other = keras.optimizers.SGD(0.05)

        def call(self, x: Any) -> Any:
            return self.first(x) + self.second(x)

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape(persistent=True) as tape:
                a = tf.reduce_mean((self.first(x) - y) ** 2)
                b = tf.reduce_mean((self.second(x) - 2 * y) ** 2)
            for loss, layer, optimizer in (
                (a, self.first, self.optimizer),
                (b, self.second, self.other),
            ):
                variables = layer.trainable_variables
                gradients = tape.gradient(loss, variables)
                optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": a + b}

    keras.utils.set_random_seed(3)
    model = Pair()
    model(tf.zeros((1, 3)))
    model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    return model


def make_frozen() -> Any:
    def make_layers() -> list[Any]:
        frozen = keras.layers.Dense(3, trainable=False)
        return [frozen, keras.layers.BatchNormalization(), keras.layers.Dense(1)]

    return make_sequence(make_layers)


def make_masked() -> Any:
    """Return a model of sequences in which 0 is no value."""
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Embedding(6, 2, mask_zero=True), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((4,)), *layers])
    model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
    return model


def make_masked_pair() -> Any:
    """Return a model of two sequences with a mask and an output for each, and a penalty."""
    keras.utils.set_random_seed(3)
    inputs = {name: keras.layers.Input((4,), name=name) for name in ("first", "second")}
    outputs = {}
    for name, given in inputs.items():
        known = keras.layers.Embedding(6, 2, mask_zero=True)(given)
        outputs[name] = keras.layers.Dense(1, kernel_regularizer="l2")(known)
    model = keras.Model(inputs, outputs)
    losses = {"first": "mse", "second": "mae"}
    model.compile("sgd", losses, loss_weights={"first": 1, "second": 3}, jit_compile=False)
    return model


def make_ignoring() -> Any:
    """Return a model of three classes whose loss ignores the class -1."""

    def make_layers() -> list[Any]:
        return [keras.layers.Dense(3, activation="softmax")]

    return make_sequence(
        make_layers,
        optimizer="sgd",
        loss=keras.losses.SparseCategoricalCrossentropy(ignore_class=-1),
    )
