"""``predict_files``: outputs, refused rows, formats and faults."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import servers
from dask_ml.wrappers import ParallelPostFit
from prediction_cases import Flights, check_outputs, read_output
from scale import FULL
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from xgboost import XGBClassifier, XGBRegressor

import hyperplane
from hyperplane.errors import ReadError, RequestError
from hyperplane.ml import ModelRegistry, predict_files
from hyperplane.ml.prediction import batch, instances, model_files, predictors
from hyperplane.ml.prediction.model_files import find_model, load_model
from hyperplane.ml.prediction.predictors import encode_predictions


@pytest.mark.parametrize("data_format", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("batch_size", [1, 16, 1000])
def test_outputs_equal_those_of_a_plain_loop(
    flights: Flights, data_format: str, batch_size: int
) -> None:
    out = flights.folder / "out"
    result = predict_files(flights.url, flights.write(data_format), out, batch_size=batch_size)
    assert (result.files, result.rows, result.errors) == (5, 200, 5)
    check_outputs(flights, out)
    names = {
        f"prediction.{kind}-{n:05d}-of-00005"
        for kind in ("results", "errors_stats")
        for n in range(5)
    }
    assert {path.name for path in out.iterdir() if not path.name.startswith("_")} == names


@pytest.mark.skipif(not FULL, reason="starts an object store: at full scale")
@pytest.mark.service
def test_model_inputs_and_outputs_in_an_object_store(
    flights: Flights, s3_options: dict[str, Any]
) -> None:
    import s3fs

    bucket = servers.bucket("s3", s3_options)
    system = s3fs.S3FileSystem(**s3_options)
    flights.write("parquet")
    system.put(str(flights.folder / "part-*.parquet"), f"{bucket.url}/in/")
    models = ModelRegistry(f"{bucket.url}/models", storage_options=s3_options)
    models.create("delay", flights.model)
    arguments = (f"{bucket.url}/models/delay", f"{bucket.url}/in/*.parquet", f"{bucket.url}/out")
    assert predict_files(*arguments, storage_options=s3_options).rows == 200
    system.get(f"{bucket.url}/out/", str(flights.folder / "out"), recursive=True)
    check_outputs(flights, flights.folder / "out")
    assert predict_files(*arguments, storage_options=s3_options).finished_before == 5
    assert [each.version for each in models.list_versions()] == ["v1"]


class Graph:
    """A predictor of the only weight in a folder, in place of TensorFlow."""

    columns = None

    def __init__(self, data: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.names = archive.namelist()
            self.weight = float(archive.read("variables/variables.index"))

    def predict(self, rows: Any) -> np.ndarray:
        return self.weight * rows[:, 0]

    def empty(self) -> None:
        return None


@pytest.mark.slow
@pytest.mark.service
def test_the_folder_of_a_saved_model_in_an_object_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3_options: dict[str, Any]
) -> None:
    import s3fs

    monkeypatch.setattr(predictors, "decode_saved_model", Graph)
    bucket, system = servers.bucket("s3", s3_options), s3fs.S3FileSystem(**s3_options)
    files = {"saved_model.pb": "", "variables/variables.index": "3", "notes.txt": "", "a/b.pb": ""}
    folder = f"{bucket.url}/graph"
    system.pipe({f"{folder}/{name}": text.encode() for name, text in files.items()})
    file = find_model(folder, trusted=True, storage_options=s3_options)
    predictor, _ = load_model(file)
    assert predictor.names == ["saved_model.pb", "variables/variables.index"]
    models = ModelRegistry(f"{bucket.url}/graphs", storage_options=s3_options)
    version = models.create("graph", folder, trusted=True)
    assert (version.framework, version.sha256) == ("tensorflow", file.sha256)
    system.pipe(f"{folder}/variables/variables.index", b"4")
    model_files._models.clear()
    with pytest.raises(ReadError, match="was replaced since the prediction began"):
        load_model(file)
    (tmp_path / "in.jsonl").write_text("[2]\n")
    for url, expected in ((version.url, 6.0), (folder, 8.0)):
        given = (url, tmp_path / "in.jsonl", tmp_path / str(expected))
        assert predict_files(*given, trusted=True, storage_options=s3_options).rows == 1
        assert read_output(tmp_path / str(expected), "results", 0, 1)[0]["prediction"] == expected
    with pytest.raises(RequestError, match="trusted = False"):
        models.create("graph", folder)
    system.rm(folder, recursive=True)
    model_files._models.clear()
    with pytest.raises(ReadError, match="was removed"):
        load_model(file)


def test_a_repeated_call_writes_nothing(flights: Flights) -> None:
    out = flights.folder / "out"
    predict_files(flights.url, flights.write("parquet"), out)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    (out / "prediction.results-00002-of-00005").unlink()
    result = predict_files(flights.url, str(flights.folder / "part-*.parquet"), out)
    assert (result.finished_before, result.rows) == (4, 40)
    assert "4 files of 5, by an earlier call" in str(result)
    check_outputs(flights, out)
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed == {"prediction.results-00002-of-00005"}  # the reasons are the same


def test_another_request_does_not_resume(flights: Flights) -> None:
    files, out = flights.write("parquet"), flights.folder / "out"
    predict_files(flights.url, files, out)
    with pytest.raises(RequestError, match=r"differs in batch_size; choose another folder"):
        predict_files(flights.url, files, out, batch_size=65)
    with pytest.raises(RequestError, match=r"differs in columns"):
        predict_files(flights.url, files, out, columns=["a", "b"])
    frame = flights.frames[3].assign(a=1.0)
    frame.to_parquet(flights.folder / "part-3.parquet")
    with pytest.raises(RequestError, match=r"the input files \(.*part-3.parquet has changed\)"):
        predict_files(flights.url, files, out)
    (flights.folder / "part-3.parquet").unlink()
    with pytest.raises(RequestError, match=r"part-3.parquet is not in both"):
        predict_files(flights.url, files, out)
    other = LinearRegression().fit(flights.frames[0][["a", "b"]].fillna(0), range(40))
    hyperplane.save(other, flights.url / "model.skops", mode="overwrite")
    with pytest.raises(RequestError, match=r"differs in the model, the input files"):
        predict_files(flights.url, files, out)


def test_outputs_of_another_program_are_not_mixed(flights: Flights) -> None:
    out = flights.folder / "out"
    out.mkdir()
    (out / "prediction.results-00000-of-00002").write_text("")
    with pytest.raises(RequestError, match="another program"):
        predict_files(flights.url, flights.write("csv"), out)


@pytest.mark.slow
def test_two_calls_at_once_write_the_same_outputs(flights: Flights) -> None:
    files, out = flights.write("parquet"), flights.folder / "out"
    errors: list[BaseException] = []

    def call() -> None:
        try:
            predict_files(flights.url, files, out)
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    check_outputs(flights, out)


def test_all_faults_are_reported_at_once(flights: Flights) -> None:
    arguments: Any = {"batch_size": 0, "max_workers": True, "columns": "a", "trusted": 1}
    with pytest.raises(RequestError, match="nothing was predicted") as raised:
        predict_files(3, "no-*.csv", "", data_format="xml", **arguments)  # type: ignore[arg-type]
    places = [fault.where for fault in raised.value.faults]
    assert places == [
        "batch_size", "max_workers", "trusted", "columns", "data_format", "input", "output",
        "model",
    ]  # fmt: skip


def test_a_missing_column_is_an_error_that_names_file_and_column(flights: Flights) -> None:
    files, out = flights.write("parquet"), flights.folder / "out"
    flights.frames[2].drop(columns="a").to_parquet(flights.folder / "part-2.parquet")
    problem = r"part-2.parquet: lacks the columns 'a' of the model \S+\.skops; add them"
    with pytest.raises(ReadError, match=problem) as raised:
        predict_files(flights.url, files, out)
    assert "cannot be read" not in str(raised.value)
    assert "outputs of 2 of 5 files" in raised.value.__notes__[0]
    flights.frames[2].to_parquet(flights.folder / "part-2.parquet")
    with pytest.raises(RequestError, match="has changed"):
        predict_files(flights.url, files, out)


class StatelessModel(BaseEstimator):
    """An estimator that needs no fit, and has no attribute of one."""

    def predict(self, rows):
        return np.zeros(len(rows))


class ModelWithBrokenCheck(StatelessModel):
    """An estimator whose check of its state fails."""

    def __sklearn_is_fitted__(self):
        return self.missing is not None


def test_a_model_that_is_not_fitted_is_refused_before_the_prediction(
    flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_predict_shards", lambda *_: pytest.fail("it has begun"))
    files, out = flights.write("parquet"), flights.folder / "out"
    for model in (LinearRegression(), make_pipeline(LinearRegression()), XGBClassifier()):
        joblib.dump(model, flights.folder / "new.joblib")
        problem = f"a {type(model).__name__} that is not fitted: expected a fitted model; call fit"
        with pytest.raises(RequestError, match=problem):
            predict_files(flights.folder / "new.joblib", files, out, trusted=True)
    assert not out.exists()
    wrapper = ParallelPostFit(LinearRegression().fit([[0]], [0]))
    for usable in (StatelessModel(), ModelWithBrokenCheck(), wrapper):
        joblib.dump(usable, flights.folder / "usable.joblib")
        predictor, _ = load_model(find_model(flights.folder / "usable.joblib", trusted=True))
        assert list(predictor.predict(np.zeros((2, 1)))) == [0.0, 0.0]


def test_a_damaged_file_is_an_error(flights: Flights) -> None:
    (flights.folder / "part.parquet").write_bytes(b"PAR1")
    with pytest.raises(ReadError, match=r"part.parquet: cannot be read as parquet"):
        predict_files(flights.url, flights.folder / "part.parquet", flights.folder / "out")


def predict_lines(folder: Path, model: Any, text: str) -> tuple[list[Any], dict[int, str]]:
    """Return predictions, and reasons by row, of lines of JSON."""
    hyperplane.save(model, folder / "model.skops")
    (folder / "in.jsonl").write_text(text)
    predict_files(folder / "model.skops", folder / "in.jsonl", folder / "out", trusted=True)
    lines = read_output(folder / "out", "errors_stats", 0, 1)[1:]
    values = [line["prediction"] for line in read_output(folder / "out", "results", 0, 1)]
    return values, {line["row"]: line["error"] for line in lines}


def test_bad_lines_are_refused_one_by_one(tmp_path: Path) -> None:
    train = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [0.0, 1.0, 5.0]})
    model = LinearRegression().fit(train, [0.0, 1.0, 2.0])
    text = '{"b": 9, "a": 1}\n\n[1, 2]\nnot JSON\n{"a": 1}\n[1]\n7\nNaN\n[1, 1e400]\n'
    text += '{"a": 2, "b": 0, "c": 1}\n'
    values, errors = predict_lines(tmp_path, model, text)
    expected = model.predict(pd.DataFrame({"a": [1, 1, 2], "b": [9, 2, 0]}))
    np.testing.assert_allclose(values, expected, atol=1e-12)
    assert sorted(errors) == [3, 4, 5, 6, 7, 8]
    assert "not JSON" in errors[3]
    assert "no 'b'" in errors[4]
    assert "has 1 values; the model has 2 columns" in errors[5]
    assert "NaN is not a value of JSON" in errors[7]
    assert errors[8].startswith("the number 1e400 exceeds 1.798e+308")


def test_texts_are_instances(tmp_path: Path) -> None:
    texts = ["late again", "on time", "very late", "time"]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0])
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    values, errors = predict_lines(tmp_path, model, lines)
    assert (values, errors) == ([1, 0, 1, 0], {})


def test_several_outputs_of_a_model_are_lists(tmp_path: Path) -> None:
    model = LinearRegression().fit([[0.0], [1.0]], [[0.0, 1.0], [2.0, 3.0]])
    values, _ = predict_lines(tmp_path, model, "[2.0]\n0.5\n")
    np.testing.assert_allclose(values, [[4.0, 5.0], [1.0, 2.0]])


def test_codes_that_are_digits_keep_the_type_of_their_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"code": ["A1"] + ["22"] * 200})
    model = make_pipeline(OneHotEncoder(), LinearRegression()).fit(frame, [1.0] + [0.0] * 200)
    hyperplane.save(model, tmp_path / "model.skops")
    frame.to_csv(tmp_path / "in.csv", index=False)
    result = predict_files(tmp_path / "model.skops", tmp_path / "in.csv", tmp_path / "out")
    assert result.errors == 0
    values = [line["prediction"] for line in read_output(tmp_path / "out", "results", 0, 1)]
    np.testing.assert_allclose(values, model.predict(frame), atol=1e-12)


@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_xgboost_predicts_as_its_booster(flights: Flights, suffix: str) -> None:
    train = pd.concat(flights.frames)
    model = XGBClassifier(n_estimators=4).fit(train[["a", "b"]], train.a > 0)
    model.save_model(flights.folder / f"x.{suffix}")
    result = predict_files(
        flights.folder / f"x.{suffix}", flights.write("csv"), flights.folder / "out"
    )
    assert (result.rows, result.errors) == (200, 0)  # XGBoost accepts missing values
    values = [line["prediction"] for line in read_output(flights.folder / "out", "results", 1, 5)]
    expected = model.predict_proba(flights.frames[1][["a", "b"]])[:, 1]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_a_text_among_numbers_of_a_csv_file_is_one_refused_row(tmp_path: Path) -> None:
    train = pd.DataFrame({"a": np.arange(50.0)})
    XGBRegressor(n_estimators=3).fit(train, train.a).save_model(tmp_path / "x.ubj")
    hyperplane.save(LinearRegression().fit(train, train.a), tmp_path / "l.skops")
    (tmp_path / "in.csv").write_text("a\n" + "1.5\n" * 70 + "unknown\n" + "2.5\n" * 70)
    for model in ("x.ubj", "l.skops"):
        out = tmp_path / f"out-{model}"
        result = predict_files(tmp_path / model, tmp_path / "in.csv", out)
        assert (result.rows, result.errors) == (141, 1)
        assert read_output(out, "errors_stats", 0, 1)[1]["row"] == 70


def test_code_of_a_model_runs_only_if_it_is_trusted(flights: Flights) -> None:
    frame = flights.frames[0].fillna(0)[["a", "b"]]
    forest = RandomForestRegressor(3).fit(frame, frame.a)
    files = flights.write("csv")
    for suffix in ("skops", "joblib"):
        hyperplane.save(forest, flights.folder / f"f.{suffix}")
        with pytest.raises(RequestError, match="trusted = False"):
            predict_files(flights.folder / f"f.{suffix}", files, flights.folder / suffix)
        result = predict_files(
            flights.folder / f"f.{suffix}", files, flights.folder / suffix, trusted=True
        )
        assert result.rows == 200
        with pytest.raises(RequestError, match="trusted = False"):  # although it is loaded
            predict_files(flights.folder / f"f.{suffix}", files, flights.folder / suffix)


def test_compressed_lines_and_columns_by_position(tmp_path: Path) -> None:
    model = LinearRegression().fit([[0.0, 1.0], [1.0, 5.0], [2.0, 0.0]], [0.0, 1.0, 2.0])
    hyperplane.save(model, tmp_path / "model.skops")
    frame = pd.DataFrame({"x": ["t"] * 3, "b": [1.0, 2.0, 3.0], "a": [0.0, 3.0, 1.0]})
    frame.to_csv(tmp_path / "in.csv.gz", index=False)
    predict_files(
        tmp_path / "model.skops", tmp_path / "in.csv.gz", tmp_path / "out", columns=["a", "b"]
    )
    values = [line["prediction"] for line in read_output(tmp_path / "out", "results", 0, 1)]
    np.testing.assert_allclose(values, model.predict(frame[["a", "b"]].to_numpy()), atol=1e-12)


def test_outputs_below_the_input_folder_are_no_inputs(flights: Flights) -> None:
    folder = flights.folder / "data"
    folder.mkdir()
    for number, frame in enumerate(flights.frames):
        frame.to_parquet(folder / f"part-{number}.parquet")
    for finished in (0, 5):
        result = predict_files(flights.url, folder, folder / "out", data_format="parquet")
        assert (result.files, result.finished_before) == (5, finished)
    check_outputs(flights, folder / "out")
    with pytest.raises(RequestError, match="only outputs of an earlier prediction"):
        predict_files(flights.url, folder / "out", folder / "out", data_format="json")


def test_files_without_predictions_have_empty_results(tmp_path: Path) -> None:
    train = pd.DataFrame({"a": [0.0, 1.0]})
    hyperplane.save(LinearRegression().fit(train, [0.0, 1.0]), tmp_path / "model.skops")
    (tmp_path / "0.jsonl").write_text("")
    (tmp_path / "1.jsonl").write_text("[null]\n" * 5)
    (tmp_path / "2.csv").write_text("")
    train.iloc[:0].to_parquet(tmp_path / "3.parquet")
    files = [tmp_path / name for name in ("0.jsonl", "1.jsonl", "2.csv", "3.parquet")]
    result = predict_files(tmp_path / "model.skops", files, tmp_path / "out")
    assert (result.files, result.rows, result.errors) == (4, 5, 5)
    for number in range(4):
        assert read_output(tmp_path / "out", "results", number, 4) == []
    assert len(read_output(tmp_path / "out", "errors_stats", 1, 4)) == 6
    again = predict_files(tmp_path / "model.skops", files, tmp_path / "out")
    assert again.finished_before == 4


@pytest.mark.parametrize("text", ["a,b\n1,2,3\n4,5,6\n", "a,b\n1,2,\n4,5,\n"])
def test_rows_of_csv_with_more_values_than_columns_are_not_shifted(
    flights: Flights, text: str
) -> None:
    file = flights.folder / "wide.csv"
    file.write_text(text)
    with pytest.raises(ReadError, match="its rows have more values than the 2 columns"):
        predict_files(flights.url, file, flights.folder / "out")


def test_a_file_that_changes_while_it_is_read_has_no_results(
    flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = flights.folder / "new.jsonl"
    file.write_text("[1, 2]\n")
    read_rows = instances.read_rows

    def change_and_read(*args: Any) -> Any:
        file.write_text("[1, 2]\n[3, 4]\n")
        return read_rows(*args)

    monkeypatch.setattr(instances, "read_rows", change_and_read)
    out = flights.folder / "out"
    with pytest.raises(ReadError, match=r"new\.jsonl: has changed since the prediction began"):
        predict_files(flights.url, file, out)
    assert [path.name for path in out.iterdir()] == ["_prediction.json"]


def test_predictions_that_json_lacks_are_refused() -> None:
    mixed = np.array([1.5, float("nan"), "a", None, np.float64("inf")], dtype=object)
    assert encode_predictions(mixed) == [1.5, None, "a", None, None]
    for values in ([b"a"], ["2026-01-01"], [1j]):
        array = np.array(values, dtype="datetime64[D]" if values == ["2026-01-01"] else None)
        with pytest.raises(ValueError, match="which JSON lacks"):
            encode_predictions(array)
    with pytest.raises(ValueError, match="predicts a set, which JSON lacks"):
        encode_predictions(np.array([{1}, None], dtype=object))
