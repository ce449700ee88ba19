"""Models and input files for tests of prediction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import servers
from cryptography.hazmat.primitives import serialization
from distributed.security import Security
from prediction_cases import Flights
from sklearn.linear_model import LinearRegression

import hyperplane


@pytest.fixture
def flights(tmp_path: Path) -> Flights:
    dice = np.random.default_rng(7)
    frames = []
    for _ in range(5):
        columns = {"b": dice.normal(size=40), "name": ["x"] * 40, "a": dice.normal(size=40)}
        frames.append(pd.DataFrame(columns))
    train = pd.concat(frames)
    model = LinearRegression().fit(train[["a", "b"]], 2 * train.a - train.b)
    hyperplane.save(model, tmp_path / "model" / "model.skops")
    for frame in frames:
        frame.loc[17, "a"] = np.nan
    return Flights(tmp_path, model, frames, 17)


@pytest.fixture(scope="session")
def s3_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Storage options of an S3 server that runs for the test session."""
    with servers.s3_options(tmp_path_factory.mktemp("s3")) as options:
        yield options


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate, its key, also encrypted, both in one file, and another key."""
    folder = tmp_path_factory.mktemp("tls")
    one, other = (Security.temporary().get_tls_config_for_role("client") for _ in range(2))
    (folder / "certificate.pem").write_text(one["cert"])
    (folder / "key.pem").write_text(one["key"])
    (folder / "both.pem").write_text(one["key"] + one["cert"])
    (folder / "other.pem").write_text(other["key"])
    (folder / "text.pem").write_text("text")
    passphrase = serialization.BestAvailableEncryption(b"passphrase")
    key = serialization.load_pem_private_key(one["key"].encode(), None)
    (folder / "encrypted.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, passphrase)
    )
    return folder
