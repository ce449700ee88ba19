"""Artifacts in the page: lists, previews, pictures and downloads, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pytest
from artifact_cases import NASTY, PNG, SVG, add_job, make_artifact, notebook, save
from starlette.datastructures import QueryParams
from ui_server import Page, UiServer, read

from hyperplane.jobs import Artifact
from hyperplane.jobs.execution.step_command import attempt_prefix
from hyperplane.jobs.store.job_records import IN_PROGRESS, Job, WorkUnit
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.ui import artifact_view, job_view
from hyperplane.ui.artifact_view import PAGE_SIZE, make_key
from hyperplane.ui.view import PageNotFound, PageRequest, View

pytestmark = pytest.mark.process


def ask(query: str = "", **names: str) -> PageRequest:
    return PageRequest("/", QueryParams(query), names)


def render(view: View) -> Page:
    return read(view.render_page(ask()))


def find(job: Job, artifact: Artifact) -> PageRequest:
    return ask(id=job.id, key=make_key(artifact))


def path_of(job: Job, artifact: Artifact, *more: str) -> str:
    return "/".join(["/jobs", job.id, "artifacts", make_key(artifact), *more])


@pytest.fixture
def job(place: Path, tmp_path: Path) -> Iterator[Job]:
    yield add_job(tmp_path, output=NASTY)
    with open_store()._engine.begin() as connection:
        for table in ("artifacts", "job_numbers", "jobs"):
            connection.exec_driver_sql(f"DELETE FROM hyperplane_{table}")


def test_the_page_of_a_job_lists_its_artifacts(job: Job) -> None:
    saved = [save(job, f"{number}.txt", b"x", created=1e9 + number) for number in range(30)]
    page = render(job_view.show_job(ask(id=job.id)))
    assert page.links["29.txt"] == path_of(job, saved[29])
    assert "All 31 artifacts, with previews" in page.links
    assert "5.txt" not in page.links
    without = render(job_view.describe_job(job, [], False, 1e9))
    assert "artifacts" not in "".join(without.links)


def test_artifacts_are_shown_with_previews(job: Job, tmp_path: Path) -> None:
    pd.DataFrame({"carrier": [NASTY, "AA"]}).to_parquet(tmp_path / "late.parquet")
    open_store().save_artifacts([make_artifact(job, tmp_path / "late.parquet", rows=2)])
    save(job, "plot.png", PNG)
    save(job, "unsafe.svg", SVG)
    save(job, "days.csv", f"day\n{NASTY}\n".encode())
    save(job, "a.ipynb", notebook({"output_type": "stream", "text": NASTY}))
    save(job, NASTY, b"x", url="/data/x", identity="")
    page = render(artifact_view.list_artifacts(ask(id=job.id)))
    assert page.text.count(NASTY) >= 5
    pictures = [each.get("src") for each in page.root.iter("img")]
    assert len(pictures) == 2
    assert all(re.fullmatch(r"/jobs/[-\w]+/artifacts/[0-9a-f]{24}/picture", each)
               for each in pictures)  # fmt: skip
    assert "carrier" in page.text
    assert "In [3]:" in page.text
    assert {"plot.png", "days.csv", "The job", "output"} <= page.links.keys()


def test_a_thousand_artifacts_are_shown_in_pages(job: Job) -> None:
    first = save(job, "0000.txt", b"x")
    names = [f"{number:04}.txt" for number in range(1000)]
    many = [make_artifact(job, Path(first.url), name=name) for name in names]
    open_store().save_artifacts(many)
    seen, query = [], ""
    for _ in range(11):
        page = render(artifact_view.list_artifacts(ask(query, id=job.id)))
        listed = [name for name in page.links if name.endswith(".txt")]
        assert len(listed) <= PAGE_SIZE
        seen += listed
        query = page.links.get("Older", "").partition("?")[2]
    assert sorted(seen) == names
    assert query == ""


def test_one_artifact_is_shown_with_its_facts(job: Job) -> None:
    saved = save(job, "plot.png", PNG)
    page = render(artifact_view.show_artifact(find(job, saved)))
    assert page.title == "plot.png"
    assert page.facts["address"] == saved.url
    assert page.facts["step"] == "one"
    assert page.links["plot.png"] == path_of(job, saved, "download")
    far = Artifact(job.id, "one", -1, 1, "a b.csv", "table", "csv", url="sftp://host/a b.csv")
    open_store().save_artifacts([far])
    page = render(artifact_view.show_artifact(find(job, far)))
    assert page.facts["download"].startswith(f"hyperplane job artifact {job.id[:8]} 'a b.csv'")
    assert "it is not on a disk of this machine, and in no object store" in page.text
    output = artifact_view.read_artifacts(open_store(), job)[-1]
    page = render(artifact_view.show_artifact(find(job, output)))
    assert NASTY in page.text


def content(sent: artifact_view.SentFile) -> bytes:
    data = b"".join(sent.blocks)
    assert len(data) == sent.size
    return data


def test_pictures_and_downloads_are_the_recorded_bytes(job: Job) -> None:
    for name, data, kind in (("a.png", PNG, "image/png"), ("a.svg", SVG, "image/svg+xml")):
        saved = save(job, name, data)
        sent = artifact_view.send_picture(find(job, saved))
        assert (content(sent), sent.media_type) == (data, kind)
        assert sent.disposition == f"attachment; filename*=UTF-8''{name}"
        assert content(artifact_view.send_artifact(find(job, saved))) == data
    page = save(job, 'ü\r\nx: y;".html', b"<script>alert(1)</script>")
    sent = artifact_view.send_artifact(find(job, page))
    assert sent.media_type == "application/octet-stream"
    assert re.fullmatch(r"attachment; filename\*=UTF-8''[%\w.-]+", sent.disposition)
    output = artifact_view.read_artifacts(open_store(), job)[-1]
    assert content(artifact_view.send_artifact(find(job, output))) == NASTY.encode()


@pytest.mark.parametrize("name", ["a.txt", "a.png", "a.html"])
def test_what_is_no_picture_is_not_sent_as_one(job: Job, name: str) -> None:
    saved = save(job, name, b"<html><script>alert(1)</script>")
    with pytest.raises(PageNotFound):
        artifact_view.send_picture(find(job, saved))


def test_a_file_that_was_replaced_is_not_sent(job: Job, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNG)
    for change in ("link", "folder", "content", "removed"):
        saved = save(job, f"{change}/a.png", PNG)
        path = Path(saved.url)
        if change == "link":
            path.unlink()
            path.symlink_to(secret)
        elif change == "folder":
            path.parent.rename(path.parent.with_name("other"))
            path.parent.symlink_to(path.parent.with_name("other"))
        elif change == "content":
            path.write_bytes(PNG[::-1])
        else:
            path.unlink()
        for send in (artifact_view.send_picture, artifact_view.send_artifact):
            with pytest.raises(PageNotFound):
                send(find(job, saved))
        page = render(artifact_view.show_artifact(find(job, saved)))
        assert list(page.root.iter("img")) == []


def test_a_file_that_grows_while_it_is_sent_has_the_recorded_size(job: Job) -> None:
    saved = save(job, "a.bin", b"x" * 1000)
    sent = artifact_view.send_artifact(find(job, saved))
    with Path(saved.url).open("ab") as opened:
        opened.write(b"secret")
    assert content(sent) == b"x" * 1000


def test_folders_and_addresses_of_other_kinds_are_not_sent(job: Job, tmp_path: Path) -> None:
    folder = make_artifact(job, tmp_path, name="all", is_folder=True, identity="1:2:3:x")
    far = [
        Artifact(job.id, "one", -1, 1, f"{number}.png", "picture", url=url)
        for number, url in enumerate(
            ("http://127.0.0.1:9/far.png", "sftp://host/a.png", "memory://a.png",
             "simplecache::s3://bucket/a.png", "s3://b/a.png::file:///etc/passwd")
        )
    ]  # fmt: skip
    open_store().save_artifacts([folder, *far])
    for each in (folder, *far):
        with pytest.raises(PageNotFound):
            artifact_view.send_artifact(find(job, each))
        with pytest.raises(PageNotFound):
            artifact_view.send_picture(find(job, each))


@pytest.fixture
def requests(job: Job, server: UiServer) -> dict[str, Any]:
    saved = save(job, "plot.png", PNG)
    unsafe = save(job, "unsafe.svg", SVG)
    return {"png": path_of(job, saved), "svg": path_of(job, unsafe), "server": server, "job": job}


def test_responses_with_files_have_a_separate_policy(requests: dict[str, Any]) -> None:
    server = requests["server"]
    response = server.request(f"{requests['svg']}/picture")
    assert (response.code, response.text) == (200, SVG.decode())
    assert response.headers["content-type"] == "image/svg+xml"
    policy = response.headers["content-security-policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    assert response.headers["content-disposition"].startswith("attachment")
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    download = server.request(f"{requests['svg']}/download")
    assert download.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in download.headers["content-security-policy"]
    page = server.request(requests["png"])
    assert "img-src 'self' data:" in page.headers["content-security-policy"]


@pytest.mark.parametrize("ending", ["", "/picture", "/download"])
def test_without_the_token_nothing_is_sent(requests: dict[str, Any], ending: str) -> None:
    server, path = requests["server"], requests["svg"] + ending
    assert server.request(path).code == 200
    assert server.request(path, cookie=None).code == 401
    assert server.request(path, cookie="hyperplane_ui=x").code == 401
    assert server.request(f"{path}?token=x").code == 403
    other = server.request(path, host="evil.example")
    assert other.code == 403
    assert server.request(path, sec_fetch_site="cross-site", sec_fetch_mode="no-cors").code == 403
    assert server.request(path, origin="http://evil.example").code == 403
    assert server.request(path, method="POST", sec_fetch_site="same-origin").code == 405


def test_paths_lead_to_no_other_file(requests: dict[str, Any], tmp_path: Path) -> None:
    server, job = requests["server"], requests["job"]
    log = attempt_prefix(job, WorkUnit("one"), 1).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("TOKEN=hunter2")
    base = f"/jobs/{job.id}/artifacts"
    tries = [
        "unknown", "0" * 24, "..", "../..", "%2e%2e", "..%2f..%2fsubmission.json",
        quote(str(log), safe=""), quote("../steps/000-one/attempt-1.log", safe=""), "%00",
        "plot.png",
    ]  # fmt: skip
    for each in tries:
        for ending in ("", "/picture", "/download"):
            response = server.request(f"{base}/{each}{ending}")
            assert response.code in (200, 400, 404)
            assert "hunter2" not in response.text
            if ending:
                assert response.code == 404
    assert server.request(f"/jobs/unknown/artifacts/{'0' * 24}/download").code == 404


def test_a_running_attempt_has_no_artifacts(job: Job) -> None:
    prefix = attempt_prefix(job, WorkUnit("one"), 1)
    outputs = prefix.with_name(f"{prefix.name}.outputs")
    outputs.mkdir(parents=True)
    (outputs / "token.txt").write_text("hunter2")
    open_store().update(job.id, status=IN_PROGRESS)
    page = render(artifact_view.list_artifacts(ask(id=job.id)))
    assert "token.txt" not in page.links
    assert (outputs / "token.txt").exists()
