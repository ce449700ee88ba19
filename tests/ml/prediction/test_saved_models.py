"""Prediction with SavedModels of TensorFlow, and a server of networks of TensorFlow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from prediction_cases import read_output
from serve_requests import running_command

from hyperplane.errors import ReadError, RequestError
from hyperplane.ml import ModelRegistry, predict, predict_files

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.tensorflow


class Words(tf.Module):
    """A module with two inputs, an asset and outputs of texts and numbers."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        lines = tf.lookup.TextFileInitializer(
            str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER,
        )  # fmt: skip
        self.table = tf.lookup.StaticHashTable(lines, -1)

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 2], tf.float32)]
    )
    def signature(self, word: Any, numbers: Any) -> Any:
        sums = tf.reduce_sum(numbers, axis=1)
        return {"number": tf.cast(self.table.lookup(word), tf.float32) + sums}

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.string)])
    def upper(self, word: Any) -> Any:
        return {"word": tf.strings.upper(word)}


@pytest.fixture(scope="module")
def model() -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((2,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)]
    return keras.Sequential(layers)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel, which the tests do not change."""
    folder = tmp_path_factory.mktemp("models") / "exported"
    model.export(folder, verbose=False)
    (folder / "notes.txt").write_text("no part of the model")
    return folder


@pytest.fixture
def frame() -> pd.DataFrame:
    dice = np.random.default_rng(3)
    return pd.DataFrame({"b": dice.normal(size=40), "a": dice.normal(size=40)})


def expect(model: Any, frame: pd.DataFrame) -> np.ndarray:
    return np.asarray(model(frame[["a", "b"]].to_numpy("float32")))[:, 0]


def test_files_and_a_dataframe_are_predicted(model, folder, frame, tmp_path) -> None:
    df = dd.from_pandas(frame, npartitions=2)
    found = predict(folder, df, columns=["a", "b"], trusted=True)
    np.testing.assert_allclose(found.compute(), expect(model, frame), rtol=1e-5)
    frame.loc[17, "a"] = np.nan
    frame.to_parquet(tmp_path / "in.parquet")
    given = (folder, tmp_path / "in.parquet", tmp_path / "out")
    result = predict_files(*given, columns=["a", "b"], trusted=True)
    assert (result.rows, result.errors) == (40, 1)
    lines = read_output(tmp_path / "out", "results", 0, 1)
    found = [line["prediction"] for line in lines]
    np.testing.assert_allclose(found, expect(model, frame.drop(index=17)), rtol=1e-5)
    # A file beside the model is no part of its checksum; the weights are.
    (tmp_path / "out" / "prediction.results-00000-of-00001").unlink()
    again = predict_files(*given, columns=["a", "b"], trusted=True)
    assert (again.rows, again.finished_before) == (40, 0)


def test_a_module_with_an_asset_and_several_inputs(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("ab\ncd\n")
    module = Words(tmp_path / "words.txt")
    tf.saved_model.save(module, tmp_path / "words", signatures=module.signature)
    tf.saved_model.save(module, tmp_path / "upper", signatures=module.upper)
    tf.saved_model.save(module, tmp_path / "without")
    (tmp_path / "words.txt").unlink()
    models = ModelRegistry(tmp_path / "models")
    version = models.create("words", tmp_path / "words", trusted=True)
    assert (version.framework, version.columns) == ("tensorflow", ("numbers", "word"))
    shutil.rmtree(tmp_path / "words")
    rows = [{"word": "cd", "numbers": [1.0, 2.0]}, {"numbers": [0.5, -1], "word": "no"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict_files(version.url, tmp_path / "in.jsonl", tmp_path / "out", trusted=True)
    found = [line["prediction"] for line in read_output(tmp_path / "out", "results", 0, 1)]
    assert found == [4.0, -1.5]
    (tmp_path / "in.jsonl").write_text('["é"]\n["b"]\n')
    predict_files(tmp_path / "upper", tmp_path / "in.jsonl", tmp_path / "texts", trusted=True)
    found = [line["prediction"] for line in read_output(tmp_path / "texts", "results", 0, 1)]
    assert found == ["é", "B"]
    with pytest.raises(ReadError, match="has no signature serving_default; it has none"):
        predict_files(tmp_path / "without", tmp_path / "in.jsonl", tmp_path / "no", trusted=True)


def test_a_folder_is_loaded_only_if_it_is_trusted(folder: Path, frame: pd.DataFrame) -> None:
    with pytest.raises(RequestError, match=r"trusted = False.*or save a model of Keras as \.keras"):
        predict(folder, dd.from_pandas(frame, npartitions=1))
    with pytest.raises(RequestError, match="give the folder of the SavedModel"):
        predict(folder / "saved_model.pb", dd.from_pandas(frame, npartitions=1), trusted=True)


def test_a_damaged_folder_is_an_error(folder: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    next((copied / "variables").glob("variables.data-*")).write_bytes(b"")
    with pytest.raises(ReadError, match="is damaged"):
        predict(copied, dd.from_pandas(frame, npartitions=1), trusted=True)


@pytest.mark.process
def test_networks_of_tensorflow_are_served(model, folder, frame, tmp_path) -> None:
    pytest.importorskip("uvicorn")
    models = ModelRegistry(tmp_path / "models")
    models.create("layers", model)
    models.create("graph", folder, trusted=True)
    rows = frame[["a", "b"]].to_numpy().tolist()
    arguments = ["--registry", str(tmp_path / "models"), "--trusted"]
    with running_command(tmp_path, *arguments) as server:
        for name in ("layers", "graph"):
            answer = server.predict(rows, name)
            assert answer.code == 200, answer.text
            found = answer.content["predictions"]
            np.testing.assert_allclose(found, expect(model, frame), rtol=1e-5)
            refused = server.predict([rows[0], [1.0, None], [1.0], ["x", 1.0], [1e39, 1.0]], name)
            assert refused.code == 400
            assert [n for n in range(5) if f"instance {n}: " in refused.text] == [1, 2, 3, 4]
        status = server.request("/v1/models/graph").content["model_version_status"]
        assert [each["framework"] for each in status] == ["tensorflow"]
