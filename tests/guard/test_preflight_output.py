"""Checks of an output before a start, each compared with what a save does."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.guard.preflight.paths import find_data_bytes
from hyperplane.guard.preflight.storage import check_output
from hyperplane.platforms.local import machine

pytestmark = pytest.mark.usefixtures("patient_checks")

TABLE = pd.DataFrame({"a": [1, 2]})


def _states(output: Path, data: Any = None) -> dict[str, str]:
    """Return the texts of the findings on an output by state."""
    plan = hyperplane.plan_cluster(
        engine="local", num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5
    )
    report = hyperplane.preflight(plan, output=output, data=data)
    return {
        finding.state: str(finding) for finding in report.findings if finding.subject == "output"
    }


@pytest.fixture
def without_space() -> Iterator[None]:
    """Every write to a file fails, as on a full disk; the creation of an empty one does not."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("without_space")
def test_an_output_on_a_full_disk_is_a_fault(tmp_path: Path) -> None:
    [finding] = check_output(tmp_path / "out.parquet")
    assert finding.state == "fault"
    assert "cannot be written: File too large" in finding.text
    assert list(tmp_path.iterdir()) == []


def test_a_disk_with_little_space_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(free: int, size: int | None) -> list[str]:
        monkeypatch.setattr(machine, "free_disk", lambda folder: free)
        return [each.state for each in check_output(tmp_path / "out.parquet", None, size)]

    assert states(free=10_000_000, size=None) == ["warning"]
    assert states(free=10**9, size=2 * 10**9) == ["warning"]
    assert states(free=10**9, size=10**9) == states(free=10**9, size=None) == ["ok"]
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert find_data_bytes(da.ones((1000, 10))) == 80_000
    assert find_data_bytes([tmp_path / "a.csv"]) == 4
    assert find_data_bytes("s3://bucket/a.csv") is None
    frame = dd.from_pandas(pd.DataFrame({"a": range(10)}), npartitions=2)
    assert find_data_bytes(frame) is None, "its nbytes raise NotImplementedError"
    unknown = da.ones(10)[np.ones(10, dtype=bool)]
    assert find_data_bytes(unknown[unknown > 0]) is None


@pytest.mark.parametrize("target", ["nowhere/x", "link"])
def test_an_output_below_a_link_that_leads_to_nothing_is_a_fault(
    target: str, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    found = _states(link / "folder" / "out.parquet")
    assert f"{link} is a link that leads to nothing" in found["fault"]
    with pytest.raises((hyperplane.HyperplaneError, OSError)):
        hyperplane.save(TABLE, link / "folder" / "out.parquet")


@pytest.mark.parametrize("name", ["out.xyz", "out.csv.gz"])
def test_a_suffix_that_save_refuses_is_a_warning(name: str, tmp_path: Path) -> None:
    found = _states(tmp_path / name)
    with pytest.raises(hyperplane.RequestError) as caught:
        hyperplane.save(TABLE, tmp_path / name)
    fault = caught.value.faults[0]
    expected = str(fault).replace("DataFrame", "a table")
    assert expected in found["warning"]
    assert found["ok"]  # it can be written
    frame = dd.from_pandas(TABLE, npartitions=1)
    assert "warning" not in _states(tmp_path / "out.v2", frame)  # parts have the default format
    assert "for a Dask dataframe" in _states(tmp_path / "out.png", frame)["warning"]


def test_what_is_saved_already_is_reported_as_save_does(tmp_path: Path) -> None:
    hyperplane.save(TABLE, tmp_path / "table.parquet")
    assert "save refuses other content" in _states(tmp_path / "table.parquet")["warning"]
    (tmp_path / "empty").mkdir()
    assert set(_states(tmp_path / "empty")) == {"ok"}
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "keep.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    found = _states(tmp_path / "notes")
    assert "keep.txt; a save would remove them" in found["fault"]
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(hyperplane.errors.OutputExists, match=r"keep\.txt"):
        hyperplane.save(dd.from_pandas(TABLE, npartitions=1), tmp_path / "notes")
