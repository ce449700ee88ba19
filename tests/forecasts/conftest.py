"""Fixtures of the tests of forecasts."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep records of other tests from being those of earlier runs of the same job."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
