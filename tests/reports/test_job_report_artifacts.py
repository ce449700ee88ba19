"""Artifacts in the report of a job: a table and small previews, whatever they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import dask.config
import pandas as pd
import pytest
from artifact_cases import NASTY, PNG, SVG, add_job, make_artifact, save

from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports import render_job_report


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    with dask.config.set({"hyperplane.jobs.home": str(folder)}):
        yield folder
        open_store().close()


def read(report: str) -> tuple[str, list[str]]:
    """Return the text of a well-formed report, and the pictures that it has."""
    root = ElementTree.fromstring(report.removeprefix("<!DOCTYPE html>\n"))
    for element in root.iter():
        assert element.tag not in ("script", "iframe", "object", "embed", "link")
        assert not any(name.startswith("on") for name in element.attrib)
    return "\n".join(root.itertext()), [each.get("src") for each in root.iter("img")]


@pytest.mark.process
def test_a_report_has_previews_without_scripts(home: Path, tmp_path: Path) -> None:
    job = add_job(home, output=NASTY)
    pd.DataFrame({NASTY: range(100)}).to_parquet(tmp_path / "a.parquet")
    open_store().save_artifacts([make_artifact(job, tmp_path / "a.parquet", rows=100)])
    save(job, "plot.png", PNG)
    save(job, "unsafe.svg", SVG)
    save(job, f"{NASTY}.txt".replace("/", ""), b"not shown")
    text, pictures = read(render_job_report(job.id))
    assert text.count(NASTY) >= 2
    assert "100 rows, 1 column" in text
    assert "not shown" not in text
    assert [each[:22] for each in pictures] == ["data:image/png;base64,", "data:image/svg+xml;bas"]


def test_a_report_of_many_large_artifacts_is_small(home: Path) -> None:
    job = add_job(home, output="x" * 1_000_000)
    pictures = [save(job, f"{number}.png", PNG[:8] + os.urandom(450_000)) for number in range(20)]
    large = Path(pictures[0].url).with_name("large.bin")
    large.touch()
    many = [make_artifact(job, large, name=f"{number:04}.bin") for number in range(1000)]
    open_store().save_artifacts(many)
    report = render_job_report(job.id)
    assert len(report) < 3_000_000
    text, shown = read(report)
    assert len(shown) == 3
    assert "921 more artifacts" in text


def test_a_report_of_a_job_without_artifacts_has_no_section(home: Path) -> None:
    assert "Artifacts" not in render_job_report(add_job(home).id)


def test_a_file_that_was_replaced_is_not_in_a_report(home: Path, tmp_path: Path) -> None:
    job = add_job(home)
    saved = save(job, "plot.png", PNG)
    (tmp_path / "secret.png").write_bytes(PNG)
    Path(saved.url).unlink()
    Path(saved.url).symlink_to(tmp_path / "secret.png")
    assert read(render_job_report(job.id))[1] == []
