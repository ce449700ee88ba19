"""Prediction with programs of ``torch.export``."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from prediction_cases import read_output
from serve_requests import running_command
from typer.testing import CliRunner

import hyperplane
from hyperplane.cli import app
from hyperplane.errors import RequestError
from hyperplane.ml import ModelRegistry, predict, predict_files

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Dim = torch.export.Dim.DYNAMIC


class TwoInputs(torch.nn.Module):
    """A network of numbers and of categories, with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(4, 2)
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, numbers: Any, carrier: Any) -> Any:
        hidden = self.linear(torch.cat([numbers, self.embedding(carrier)], dim=1))
        return hidden, hidden.sum(dim=1)


@pytest.fixture
def frame() -> pd.DataFrame:
    dice = np.random.default_rng(3)
    frame = pd.DataFrame({"b": dice.normal(size=40), "a": dice.normal(size=40)})
    frame.loc[17, "a"] = np.nan
    return frame


@pytest.fixture
def linear(tmp_path: Path) -> Any:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    program = torch.export.export(module, (torch.zeros(2, 2),), dynamic_shapes=({0: Dim},))
    torch.export.save(program, tmp_path / "model.pt2")
    return module


def expect(module: Any, frame: pd.DataFrame) -> np.ndarray:
    with torch.inference_mode():
        return module(torch.tensor(frame[["a", "b"]].to_numpy("float32"))).numpy()[:, 0]


def test_files_are_predicted_and_rows_with_missing_values_refused(linear, frame, tmp_path) -> None:
    frame.to_parquet(tmp_path / "in.parquet")
    result = predict_files(
        tmp_path / "model.pt2", tmp_path / "in.parquet", tmp_path / "out",
        columns=["a", "b"], trusted=True, batch_size=16,
    )  # fmt: skip
    assert (result.rows, result.errors) == (40, 1)
    lines = read_output(tmp_path / "out", "results", 0, 1)
    good = frame.drop(index=17)
    assert [line["row"] for line in lines] == list(good.index)
    found = [line["prediction"] for line in lines]
    np.testing.assert_allclose(found, expect(linear, good), rtol=1e-5)
    error = read_output(tmp_path / "out", "errors_stats", 0, 1)[1]
    assert error["row"] == 17
    assert "missing" in error["error"]


def test_a_dataframe_is_predicted(linear, frame, tmp_path) -> None:
    good = frame.drop(index=17)
    df = dd.from_pandas(good, npartitions=3)
    found = predict(tmp_path / "model.pt2", df, columns=["a", "b"], trusted=True)
    assert found._meta.dtype == "float32"
    np.testing.assert_allclose(found.compute(), expect(linear, good), rtol=1e-5)


def test_a_program_with_several_inputs_gets_columns_by_name(tmp_path) -> None:
    module = TwoInputs()
    example = (torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))
    program = torch.export.export(module, example, dynamic_shapes=({0: Dim}, {0: Dim}))
    version = ModelRegistry(tmp_path / "models").create("delay", program)
    assert version.framework == "torch"
    assert version.columns == ("numbers", "carrier")
    assert version.packages["torch"] == importlib.metadata.version("torch")
    lines = [
        {"carrier": 3, "numbers": [1.0, 2.0]},
        {"carrier": 1.5, "numbers": [1.0, 2.0]},
        {"carrier": 1, "numbers": [1.0]},
        {"carrier": 1, "numbers": [0.5, -1.0]},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = predict_files(
        tmp_path / "models/delay", tmp_path / "in.jsonl", tmp_path / "out", trusted=True
    )
    assert (result.rows, result.errors) == (4, 2)
    with torch.inference_mode():
        pairs, sums = module(torch.tensor([[1.0, 2.0], [0.5, -1.0]]), torch.tensor([3, 1]))
    expected = torch.cat([pairs, sums[:, None]], dim=1).numpy()
    lines = read_output(tmp_path / "out", "results", 0, 1)
    np.testing.assert_allclose([line["prediction"] for line in lines], expected, rtol=1e-5)
    reasons = [line["error"] for line in read_output(tmp_path / "out", "errors_stats", 0, 1)[1:]]
    assert "'carrier' is not of type int64" in reasons[0]
    assert "shape (1,); the input 'numbers' needs (2,)" in reasons[1]


def test_a_file_is_loaded_only_if_it_is_trusted(linear, frame, tmp_path) -> None:
    with pytest.raises(RequestError, match="trusted = False"):
        predict(tmp_path / "model.pt2", dd.from_pandas(frame, npartitions=1))


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_weights_without_a_program_are_refused(suffix, tmp_path) -> None:
    torch.save(torch.nn.Linear(2, 1).state_dict(), tmp_path / f"model{suffix}")
    with pytest.raises(RequestError, match=r"torch\.export\.save"):
        predict_files(tmp_path / f"model{suffix}", tmp_path, tmp_path / "out", trusted=True)


def test_a_module_and_a_program_for_fixed_rows_are_refused(tmp_path) -> None:
    models = ModelRegistry(tmp_path / "models")
    module = torch.nn.Linear(2, 1)
    with pytest.raises(RequestError, match=r"torch\.export\.export"):
        models.create("delay", module)
    with pytest.raises(RequestError, match="dynamic_shapes"):
        models.create("delay", torch.export.export(module, (torch.zeros(2, 2),)))
    assert models.list_versions() == []


def test_the_command_predicts_instances(linear, tmp_path) -> None:
    (tmp_path / "in.jsonl").write_text("[1.0, 2.0]\n[0.5, -1.0]\n")
    words = ["predict", "--model", f"{tmp_path}/model.pt2", "--trusted"]
    done = CliRunner().invoke(app, [*words, "--json-instances", f"{tmp_path}/in.jsonl"])
    assert done.exit_code == 0, done.output
    frame = pd.DataFrame({"a": [1.0, 0.5], "b": [2.0, -1.0]})
    found = [float(line) for line in done.stdout.split()]
    np.testing.assert_allclose(found, expect(linear, frame), rtol=1e-5)


@pytest.fixture
def large_client() -> Iterator[Any]:
    """Client of two workers with more memory than PyTorch and its compiler need."""
    client, cluster = hyperplane.initialize_cluster(
        nprocs=2, nthreads=1, num_workers=1, ram_gb_per_proc=1.5
    )
    yield client
    client.close()
    cluster.close()


@pytest.mark.cluster
def test_workers_predict_with_one_thread_and_load_the_program_once(
    linear, frame, tmp_path, large_client
) -> None:
    good = frame.drop(index=17)
    for number in range(4):
        good.iloc[number::4].to_parquet(tmp_path / f"part-{number}.parquet")
    result = predict_files(
        tmp_path / "model.pt2", str(tmp_path / "part-*.parquet"), tmp_path / "out",
        columns=["a", "b"], trusted=True,
    )  # fmt: skip
    assert (result.rows, result.errors) == (39, 0)
    assert 1 <= result.model_loads <= 2
    for number in range(4):
        lines = read_output(tmp_path / "out", "results", number, 4)
        found = [line["prediction"] for line in lines]
        np.testing.assert_allclose(found, expect(linear, good.iloc[number::4]), rtol=1e-5)
    assert set(large_client.run(torch.get_num_threads).values()) == {1}


@pytest.mark.process
def test_a_program_is_served(linear, frame, tmp_path) -> None:
    pytest.importorskip("uvicorn")
    rows = frame[["a", "b"]].to_numpy().tolist()
    (tmp_path / "model.pt2").rename(tmp_path / "delay.pt2")
    with running_command(tmp_path, str(tmp_path / "delay.pt2"), "--trusted") as server:
        answer = server.predict([row for row in rows if row[0] == row[0]], "delay")
        assert answer.code == 200, answer.text
        found = answer.content["predictions"]
        np.testing.assert_allclose(found, expect(linear, frame.drop(index=17)), rtol=1e-5)
        refused = server.predict([rows[0], [1.0, None], [1.0], ["x", 1.0], [1e39, 1.0]], "delay")
        assert refused.code == 400
        assert [n for n in range(5) if f"instance {n}: " in refused.text] == [1, 2, 3, 4]
        refused = server.request("/v1/models/delay:predict", b'{"instances": [[1e400, 1.0]]}')
        assert refused.code == 400
        assert "the number 1e400 exceeds" in refused.text
