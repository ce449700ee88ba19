"""Former public names of hyperplane.storage work with a warning."""

from __future__ import annotations

import pytest

import hyperplane


def test_the_former_name_of_cleanup_report_warns():
    with pytest.warns(FutureWarning, match="use hyperplane.storage.CleanupReport"):
        former = hyperplane.storage.Cleaned  # type: ignore[attr-defined]
    assert former is hyperplane.storage.CleanupReport
    assert "Cleaned" not in dir(hyperplane.storage)
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        hyperplane.storage.missing  # type: ignore[attr-defined]  # noqa: B018
