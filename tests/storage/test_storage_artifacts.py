"""Outputs in object stores as artifacts of a job: what is reported, and fetching them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.config
import dask.dataframe as dd
import pandas as pd
import pytest
import servers
from artifact_cases import add_job

import hyperplane
from hyperplane.core.artifact_reports import REPORTS_FOLDER
from hyperplane.errors import JobError, StorageError
from hyperplane.jobs import Artifact, download_artifact
from hyperplane.jobs.store.jobs_home import open_store

pytestmark = pytest.mark.service


@pytest.fixture
def job(tmp_path: Path) -> Any:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with dask.config.set({"hyperplane.jobs.home": str(home)}):
        yield add_job(home)
        open_store().close()


@pytest.mark.parametrize("store", [pytest.param("s3", marks=pytest.mark.slow), "gcs"])
def test_outputs_in_an_object_store_are_reported_and_fetched(
    store: str,
    job: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket: servers.Bucket = request.getfixturevalue(store)
    monkeypatch.setenv(REPORTS_FOLDER, str(tmp_path / "reports"))
    frame = pd.DataFrame({"day": range(10)})
    parts = dd.from_pandas(frame, npartitions=3)
    options = bucket.options
    for obj, name in ((b"far", "a b.bin"), (parts, "days")):
        hyperplane.save(obj, f"{bucket.url}/{name}", storage_options=options)
    [file] = (tmp_path / "reports").iterdir()
    reports = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["local"], each["folder"], each["files"]) for each in reports] == [
        (False, False, 1), (False, True, 3)
    ]  # fmt: skip
    for report in reports:
        name = report["url"].rpartition("/")[2]
        found = Artifact(
            job.id, "one", -1, 1, name, "file", url=report["url"], is_folder=report["folder"]
        )
        open_store().save_artifacts([found])
    monkeypatch.chdir(tmp_path)
    fetched = download_artifact(job.id, "a b.bin", storage_options=options)
    assert fetched.read_bytes() == b"far"
    folder = download_artifact(job.id, "days", storage_options=options)
    assert hyperplane.load(folder).compute()["day"].tolist() == list(range(10))
    gone = Artifact(job.id, "one", -1, 1, "gone.bin", "file", url=f"{bucket.url}/gone.bin")
    none = Artifact(job.id, "one", -1, 1, "none", "folder", url=f"{bucket.url}/none", files=None)
    open_store().save_artifacts([gone, none])
    with pytest.raises(StorageError, match=r"gone\.bin"):
        download_artifact(job.id, "gone.bin", storage_options=options)
    with pytest.raises(JobError, match="nothing is at"):
        download_artifact(job.id, "none", storage_options=options)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a b.bin",
        "days",
        "home",
        "reports",
    ]
