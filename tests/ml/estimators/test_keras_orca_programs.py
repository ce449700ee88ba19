"""Programs in the form of published Orca programs of Keras, with local data and one word changed.

The forms are those of the examples of LeNet (a dataset of images), of fuel consumption (a creator,
shards of tables with a column of vectors, steps) and of NCF (several columns with embeddings, a
table of named outputs, resumed from a file of the older format).
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed

from hyperplane.ml import XShards
from hyperplane.orca.learn.tf2 import Estimator

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.cluster,
    pytest.mark.usefixtures("keras_client"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def scale(x: Any, y: Any) -> Any:
    return tf.cast(tf.reshape(x, (12, 12, 1)), tf.float32) / 255.0, y


@pytest.mark.slow
def test_lenet(tmp_path: Path) -> None:
    """Images of two brightnesses, a dataset without batches, also for validation."""
    labels = np.tile([0, 1], 40)
    images = np.random.default_rng(0).integers(0, 100, (80, 12, 12)) + 100 * labels[:, None, None]
    data = tf.data.Dataset.from_tensor_slices((images.astype("uint8"), labels))
    train, test = data.take(64).map(scale), data.skip(64).map(scale)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((12, 12, 1)),
            layers.Conv2D(4, kernel_size=(5, 5), activation="tanh", padding="valid"),
            layers.MaxPooling2D(pool_size=(2, 2), strides=(2, 2)),
            layers.Flatten(),
            layers.Dense(8, activation="tanh"),
            layers.Dense(2, activation="softmax"),
        ]
    )
    loss = "sparse_categorical_crossentropy"
    model.compile(optimizer=keras.optimizers.RMSprop(0.01), loss=loss, metrics=["accuracy"])
    estimator = Estimator.from_keras(keras_model=model)
    history = estimator.fit(data=train, batch_size=16, epochs=6, validation_data=test)
    assert history["val_accuracy"][-1] > 0.9
    estimator.save_keras_model(tmp_path / "mnist_keras.h5")
    loaded = Estimator.load_keras_model(tmp_path / "mnist_keras.h5").get_model()
    images = np.stack([image for image, _ in test.as_numpy_iterator()])
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(loaded.predict(images, verbose=0), expected, atol=1e-5)


def build_consumption(config: dict[str, Any]) -> Any:
    """Return a model without an input layer."""
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(loss="mean_squared_error", optimizer=keras.optimizers.Adam(config["lr"]))
    return model


def test_fuel_consumption() -> None:
    """The column ``scaled_vec`` has vectors; a shard is empty."""
    values = np.random.default_rng(0).normal(size=(60, 9)).astype("float32")
    table = pd.DataFrame({"scaled_vec": list(values), "MPG": values.sum(1)})
    parts = (table[:25], table[25:25], table[25:])
    shards = XShards.lazy([delayed(part, pure=False, traverse=False) for part in parts])
    estimator = Estimator.from_keras(model_creator=build_consumption, config={"lr": 0.02})
    columns: dict[str, Any] = {"feature_cols": ["scaled_vec"], "label_cols": ["MPG"]}
    steps = math.ceil(60 / 16)
    history = estimator.fit(data=shards, batch_size=16, epochs=4, steps_per_epoch=steps, **columns)
    assert history["loss"][-1] < history["loss"][0]
    predicted = estimator.predict(shards, feature_cols=["scaled_vec"]).collect()
    assert [len(each["prediction"]) for each in predicted] == [25, 0, 35]


def create_ncf(config: dict[str, Any]) -> Any:
    """Return a model of users, items and a number, with two outputs."""
    layers = keras.layers
    user, item, dense = (layers.Input((1,), name=name) for name in ("user", "item", "dense"))
    known = [
        layers.Flatten()(layers.Embedding(config["users"], 3)(user)),
        layers.Flatten()(layers.Embedding(config["users"], 3)(item)),
    ]
    joined = layers.Dropout(0.1)(layers.Concatenate()([*known, dense]))
    outputs = [layers.Dense(1, name="rating")(joined), layers.Dense(2, name="kind")(joined)]
    model = keras.Model(inputs=[user, item, dense], outputs=outputs)
    model.compile(keras.optimizers.Adam(0.05), loss=["mse", "mse"], metrics=[["mae"], []])
    return model


def test_ncf(tmp_path: Path) -> None:
    """A fit that is resumed from ``.h5`` without the function; columns of both outputs."""
    draws = np.random.default_rng(0)
    table = pd.DataFrame({"user": draws.integers(0, 9, 80), "item": draws.integers(0, 9, 80)})
    table = table.assign(dense=draws.normal(size=80), rating=(table.user > 4).astype("float32"))
    table["kind"] = list(np.stack([table.rating, 1 - table.rating], axis=1).astype("float32"))
    names = ["user", "item", "dense"]
    columns: dict[str, Any] = {"feature_cols": names, "label_cols": ["rating", "kind"]}
    estimator = Estimator.from_keras(model_creator=create_ncf, config={"users": 9}, backend="spark")
    stats = estimator.fit(XShards.partition(table, 3), 2, 16, **columns)
    estimator.save(tmp_path / "NCF_model.h5")
    resumed = Estimator.from_keras(backend="ray", workers_per_node=2)
    resumed.load(tmp_path / "NCF_model.h5")
    more = resumed.fit(table, initial_epoch=2, epochs=5, batch_size=16, verbose="auto", **columns)
    assert len(more["loss"]) == 3
    assert more["loss"][-1] < stats["loss"][0]
    predicted = resumed.predict(table, feature_cols=names, output_cols=["score", "kinds"])
    expected = resumed.get_model().predict([table[name] for name in names], verbose=0)
    np.testing.assert_allclose(predicted["score"], expected[0][:, 0], atol=1e-5)
    np.testing.assert_allclose(np.stack(predicted["kinds"]), expected[1], atol=1e-5)
    joined = resumed.predict(table, feature_cols=names)["prediction"]
    assert joined[0][1].tolist() == predicted["kinds"][0].tolist()
