"""``ModelRegistry``: versions, defaults and concurrent writers."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import xgboost
from scale import FULL, scaled
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

import hyperplane
from hyperplane.errors import OutputExists, ReadError, RequestError, StorageError
from hyperplane.ml import ModelRegistry, predict_files
from hyperplane.ml.prediction.model_files import find_model, load_model

FRAME = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 0.0, 4.0]})


def fit(slope: float) -> Any:
    return LinearRegression().fit(FRAME, slope * FRAME.a)


@pytest.fixture
def models(tmp_path: Path) -> ModelRegistry:
    return ModelRegistry(tmp_path / "models")


def test_versions_have_metadata_and_one_default(models: ModelRegistry, tmp_path: Path) -> None:
    first, second = models.create("delay", fit(1)), models.create("delay", fit(2))
    assert [first.version, second.version] == ["v1", "v2"]
    assert [first.is_default, second.is_default] == [True, False]
    assert first.columns == ("a", "b")
    assert first.packages["scikit-learn"] == sklearn.__version__
    assert datetime.fromisoformat(first.created).utcoffset() is not None
    assert first.size == (tmp_path / "models/delay/v1" / first.file).stat().st_size
    assert models.set_default("delay", "v2").is_default
    assert [each.is_default for each in models.list_versions("delay")] == [False, True]
    assert models.create("delay", fit(3), "blue", default=True).is_default
    assert models.get("delay").version == "blue"
    assert sum(each.is_default for each in models.list_versions()) == 1


def test_predictions_use_the_default_version_or_a_named_one(
    models: ModelRegistry, tmp_path: Path
) -> None:
    for slope in (1.0, 2.0):
        models.create("delay", fit(slope))
    models.set_default("delay", "v2")
    FRAME.to_parquet(tmp_path / "in.parquet")
    for name, slope in (("delay", 2.0), ("delay/v1", 1.0)):
        out = tmp_path / f"out-{slope}"
        predict_files(tmp_path / "models" / name, tmp_path / "in.parquet", out)
        lines = (out / "prediction.results-00000-of-00001").read_text().splitlines()
        values = [json.loads(line)["prediction"] for line in lines]
        np.testing.assert_allclose(values, slope * FRAME.a, atol=1e-12)


def test_files_and_models_of_xgboost(models: ModelRegistry, tmp_path: Path) -> None:
    model = xgboost.XGBRegressor(n_estimators=2).fit(FRAME, FRAME.a)
    created = models.create("trees", model)
    assert (created.framework, created.columns) == ("xgboost", ("a", "b"))
    model.save_model(tmp_path / "model.ubj")
    assert models.create("trees", tmp_path).columns == ("a", "b")
    found = [load_model(find_model(f"{created.url[:-1]}{number}"))[0] for number in (1, 2)]
    for each in found:
        np.testing.assert_array_equal(each.predict(FRAME), model.predict(FRAME))
    forest = RandomForestRegressor(2).fit(FRAME, FRAME.a)
    hyperplane.save(forest, tmp_path / "forest.skops")
    with pytest.raises(RequestError, match="trusted = False"):
        models.create("forest", tmp_path / "forest.skops")
    assert models.create("forest", tmp_path / "forest.skops", trusted=True).version == "v1"


def test_a_version_never_changes(models: ModelRegistry) -> None:
    created = models.create("delay", fit(1), "a")
    assert models.create("delay", fit(1), "a") == created
    with pytest.raises(OutputExists, match="exists with another model"):
        models.create("delay", fit(2), "a")
    assert models.get("delay", "a") == created


def test_a_changed_file_of_a_version_is_an_error(models: ModelRegistry, tmp_path: Path) -> None:
    version = models.create("delay", fit(1))
    other = models.create("other", fit(2))
    shutil.copy(f"{other.url}/{other.file}", f"{version.url}/{version.file}")
    for url in (version.url, tmp_path / "models" / "delay"):
        with pytest.raises(ReadError, match="was changed since the version was created"):
            predict_files(url, write_rows(tmp_path), tmp_path / "out")


def test_a_removed_default_version_is_named(models: ModelRegistry, tmp_path: Path) -> None:
    for slope in (1.0, 2.0):
        models.create("delay", fit(slope))
    shutil.rmtree(tmp_path / "models/delay/v1")
    with pytest.raises(RequestError, match="one of v2; the default version v1 was removed"):
        models.get("delay")
    with pytest.raises(RequestError, match="v1 was removed; name another version"):
        find_model(str(tmp_path / "models/delay"))
    assert models.set_default("delay", "v2").is_default
    assert find_model(str(tmp_path / "models/delay")).path.endswith(models.get("delay").file)


def test_a_version_whose_creation_was_interrupted_is_not_listed(
    models: ModelRegistry, tmp_path: Path
) -> None:
    models.create("delay", fit(1))
    folder = tmp_path / "models" / "delay" / "v2"
    folder.mkdir()
    (folder / "model-0123456789abcdef.skops").write_bytes(b"half")
    assert [each.version for each in models.list_versions()] == ["v1"]
    assert models.create("delay", fit(2), "v2").version == "v2"
    assert predict_files(folder, write_rows(tmp_path), tmp_path / "out").rows == 3


def write_rows(folder: Path) -> Path:
    FRAME.to_csv(folder / "in.csv", index=False)
    return folder / "in.csv"


def test_faults(models: ModelRegistry, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nothing was created") as raised:
        models.create("1/2", 3, "../x", default="no")  # type: ignore[arg-type]
    assert [fault.where for fault in raised.value.faults] == [
        "name", "version", "default", "model",
    ]  # fmt: skip
    with pytest.raises(RequestError, match=r"not default\.json"):
        models.create("delay", fit(1), "default.json")
    with pytest.raises(RequestError, match="a model; the registry has none"):
        models.get("delay")
    models.create("delay", fit(1))
    with pytest.raises(RequestError, match="version = 'v7': expected one of v1"):
        models.set_default("delay", "v7")
    assert models.get("delay").version == "v1"
    with pytest.raises(RequestError, match="name = 'dely': expected one of delay"):
        models.list_versions("dely")
    (tmp_path / "models/delay/v1/version.json").write_text("{")
    with pytest.raises(StorageError, match="is damaged"):
        models.list_versions()


def create_versions(url: str, start: int) -> list[tuple[str, float]]:
    """Create versions, and return each with the slope of its model."""
    models, created = ModelRegistry(url), []
    for number in range(scaled(3, 6)):
        version = models.create("delay", fit(start + number)).version
        models.set_default("delay", version)
        created.append((version, float(start + number)))
    return created


@pytest.mark.slow
@pytest.mark.process
def test_concurrent_writers_create_different_versions(
    models: ModelRegistry, tmp_path: Path
) -> None:
    url, starts = str(tmp_path / "models"), scaled([100, 200], [100, 200, 300])
    # Processes import scikit-learn, which takes a second in each.
    pool: Executor = ProcessPoolExecutor(3, get_context("spawn")) if FULL else ThreadPoolExecutor(2)
    with pool:
        lists = list(pool.map(create_versions, [url] * len(starts), starts))
    slopes = dict(pair for pairs in lists for pair in pairs)
    versions = models.list_versions()
    assert [version.version for version in versions] == [
        f"v{number}" for number in range(1, len(lists) * len(lists[0]) + 1)
    ]
    assert sum(version.is_default for version in versions) == 1
    for version in versions:
        model = hyperplane.load(f"{version.url}/{version.file}")
        np.testing.assert_allclose(
            model.predict(FRAME), slopes[version.version] * FRAME.a, atol=1e-9
        )
        # No file of another writer that chose the same number is left.
        names = {path.name for path in Path(version.url).iterdir()}
        assert names == {version.file, "version.json"}
