"""Prediction with models of Keras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from prediction_cases import read_output

from hyperplane.errors import RequestError
from hyperplane.ml import ModelRegistry, predict, predict_files

pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.tensorflow


@pytest.fixture
def model() -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((2,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)]
    return keras.Sequential(layers)


@pytest.fixture
def frame() -> pd.DataFrame:
    dice = np.random.default_rng(3)
    return pd.DataFrame({"b": dice.normal(size=40), "a": dice.normal(size=40)})


def expect(model: Any, frame: pd.DataFrame) -> np.ndarray:
    return np.asarray(model(frame[["a", "b"]].to_numpy("float32")))[:, 0]


def test_files_are_predicted_and_rows_with_missing_values_refused(model, frame, tmp_path) -> None:
    model.save(tmp_path / "model.keras")
    frame.loc[17, "a"] = np.nan
    frame.to_csv(tmp_path / "in.csv", index=False)
    result = predict_files(
        tmp_path / "model.keras", tmp_path / "in.csv", tmp_path / "out", columns=["a", "b"]
    )
    assert (result.rows, result.errors) == (40, 1)
    lines = read_output(tmp_path / "out", "results", 0, 1)
    good = frame.drop(index=17)
    assert [line["row"] for line in lines] == list(good.index)
    found = [line["prediction"] for line in lines]
    np.testing.assert_allclose(found, expect(model, good), rtol=1e-5)


def test_a_version_of_a_registry_predicts_a_dataframe(model, frame, tmp_path) -> None:
    models = ModelRegistry(tmp_path / "models")
    model.compile("sgd", "mse")
    version = models.create("delay", model)
    assert (version.framework, version.columns) == ("keras", None)
    assert {"keras", "tensorflow-cpu"} <= set(version.packages)
    df = dd.from_pandas(frame, npartitions=3)
    found = predict(version.url, df, columns=["a", "b"])
    assert found._meta.dtype == "float32"
    np.testing.assert_allclose(found.compute(), expect(model, frame), rtol=1e-5)


def test_a_model_with_several_inputs_and_outputs(tmp_path: Path) -> None:
    numbers = keras.Input((2,), name="numbers")
    carrier = keras.Input((), name="carrier", dtype="int32")
    embedded = keras.layers.Embedding(4, 2)(carrier)
    joined = keras.layers.Concatenate()([numbers, embedded])
    outputs = [keras.layers.Dense(2)(joined), keras.layers.Dense(1)(joined)]
    model = keras.Model([numbers, carrier], outputs)
    model.save(tmp_path / "model.keras")
    lines = [{"carrier": 3, "numbers": [1.0, 2.0]}, {"carrier": 1, "numbers": [0.5, -1.0]}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    predict_files(tmp_path / "model.keras", tmp_path / "in.jsonl", tmp_path / "out")
    given = [np.array([[1.0, 2.0], [0.5, -1.0]], "float32"), np.array([3, 1], "int32")]
    expected = np.concatenate([np.asarray(each) for each in model(given)], axis=1)
    found = [line["prediction"] for line in read_output(tmp_path / "out", "results", 0, 1)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@keras.saving.register_keras_serializable("tests")
class Doubling(keras.layers.Layer):
    """A layer that only this module defines."""

    def call(self, inputs: Any) -> Any:
        return 2 * inputs


@keras.saving.register_keras_serializable("tests")
def halve(values: Any) -> Any:
    """Return half of the values."""
    return values / 2


@pytest.mark.parametrize(
    ("layer", "name"),
    [(Doubling(), "tests>Doubling"), (keras.layers.Dense(1, activation=halve), "tests>halve")],
    ids=["class", "function"],
)
def test_custom_classes_and_functions_are_refused(layer, name, tmp_path) -> None:
    keras.Sequential([keras.Input((2,)), layer]).save(tmp_path / "model.keras")
    with pytest.raises(RequestError, match=f"a file with {name}"):
        predict_files(
            tmp_path / "model.keras",
            tmp_path,
            tmp_path / "out",
            data_format="json",
            trusted=True,
        )


def test_a_layer_with_code_is_loaded_only_if_it_is_trusted(frame, tmp_path) -> None:
    layer = keras.layers.Lambda(lambda values: 3 * values)
    keras.Sequential([keras.Input((2,)), layer]).save(tmp_path / "model.keras")
    df = dd.from_pandas(frame, npartitions=1)
    with pytest.raises(RequestError, match="trusted = False: expected True if you trust"):
        predict(tmp_path / "model.keras", df, columns=["a", "b"])
    found = predict(tmp_path / "model.keras", df, columns=["a", "b"], trusted=True).compute()
    np.testing.assert_allclose(found, 3 * frame[["a", "b"]], rtol=1e-5)


def test_older_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(b"")
    with pytest.raises(RequestError, match=r"as \.keras"):
        predict_files(tmp_path / "model.h5", tmp_path, tmp_path / "out")
