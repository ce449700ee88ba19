"""``hyperplane job artifacts`` and ``hyperplane job artifact``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest
from artifact_cases import NASTY, PNG, add_job, make_artifact, save
from fsspec.implementations.memory import MemoryFileSystem
from job_cases import bash
from terminal import Run

import hyperplane
from hyperplane.errors import JobError, RequestError
from hyperplane.jobs import Artifact, JobHandle, download_artifact, list_artifacts
from hyperplane.jobs.job_cleanup import clean_jobs
from hyperplane.jobs.store.jobs_home import open_store


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with dask.config.set({"hyperplane.jobs.home": str(home)}):
        yield home
        open_store().close()


def test_artifacts_are_listed(run: Run, alone: Path) -> None:
    assert run("job", "artifacts", add_job(alone).id).out == "no artifacts\n"
    job = add_job(alone, bash("one", "true"), bash("two", "true", chunks=3), output="42")
    save(job, "figures/delay.png", PNG)
    save(job, "days.csv", b"a\n1\n", step="two", chunk=2, rows=1)
    out = run("job", "artifacts", "saving#2").out
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["name", "step", "kind", "size", "rows"]
    assert ["figures/delay.png", "one", "picture", "69", "B"] in rows
    assert ["days.csv", "two", "[2]", "table", "4", "B", "1"] in rows
    assert ["output", "output", "2", "B"] in rows
    shown = run("job", "show", job.id).out
    assert f"3, shown by hyperplane job artifacts {job.id[:8]}" in shown
    found = run("job", "artifacts", job.id[:8], "--json").json
    assert {each["name"]: each["chunk"] for each in found} == {
        "figures/delay.png": -1, "days.csv": 2, "output": -1
    }  # fmt: skip
    assert [each["content"] for each in found if each["kind"] == "output"] == ["42"]
    assert not any("identity" in each for each in found)
    only = run("job", "artifacts", job.id, "--step", "two", "--json").json
    assert [each["name"] for each in only] == ["days.csv"]
    assert [each.name for each in JobHandle(job.id).artifacts("two")] == ["days.csv"]
    assert str(list_artifacts(job.id, "one")).splitlines()[1].startswith("figures/delay.png")
    assert "no artifacts" in str(list_artifacts(add_job(alone).id))


def test_an_unknown_step_or_job_is_an_error(run: Run, alone: Path) -> None:
    job = add_job(alone)
    with pytest.raises(RequestError, match="step = 'x': expected one of 'one'"):
        list_artifacts(job.id, "x")
    assert run("job", "artifacts", job.id, "--step", "x").code == 2
    assert run("job", "artifacts", "unknown").code == 1
    assert run("job", "artifact", "unknown", "x").code == 1


def test_names_cannot_change_the_terminal(run: Run, alone: Path) -> None:
    job = add_job(alone)
    save(job, "a\x1b[2J\n.txt", b"x")
    out = run("job", "artifacts", job.id).out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 3


def test_a_file_is_copied(run: Run, alone: Path, tmp_path: Path) -> None:
    job = add_job(alone)
    save(job, "figures/delay.png", PNG)
    answer = run("job", "artifact", job.id, "figures/delay.png")
    written = Path("delay.png").resolve()
    assert answer.out == f"{written} is written, 69 B\n"
    assert written.read_bytes() == PNG
    again = run("job", "artifact", job.id, "delay.png")
    assert again.code == 2
    assert "expected a file that does not exist" in again.err
    assert run("job", "artifact", job.id, "delay.png", "--overwrite").code == 0
    document = run("job", "artifact", job.id, "delay.png", "-o", str(tmp_path), "--json").json
    assert document == {"file": str(tmp_path / "delay.png"), "bytes": 69}
    assert run("job", "artifact", job.id, "delay.png", "-o", "no/such/a.png").code == 2
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["delay.png"]


def test_an_artifact_is_printed(run: Run, alone: Path) -> None:
    job = add_job(alone, output="forty-two")
    save(job, "notes.txt", b"fine\n")
    assert run("job", "artifact", job.id, "notes.txt", "-o", "-").out == "fine\n"
    assert run("job", "artifact", job.id, "output", "-o", "-").out == "forty-two"
    path = download_artifact(job.id, "output")
    assert (path.name, path.read_text()) == ("output.txt", "forty-two")


def test_a_file_that_has_changed_is_not_copied(run: Run, alone: Path) -> None:
    job = add_job(alone)
    saved = save(job, "a.txt", b"fine")
    Path(saved.url).write_text("else")
    answer = run("job", "artifact", job.id, "a.txt")
    assert answer.code == 1
    assert "it has changed since its step ended" in answer.err
    Path(saved.url).unlink()
    with pytest.raises(JobError, match="it was removed, moved or replaced"):
        download_artifact(job.id, "a.txt")
    assert list(Path.cwd().iterdir()) == []


def test_a_folder_is_copied_whole(run: Run, alone: Path, tmp_path: Path) -> None:
    job = add_job(alone)
    frame = pd.DataFrame({"day": range(10)})
    target = tmp_path / "days.parquet"
    hyperplane.save(dd.from_pandas(frame, npartitions=3), target)
    fields = {"kind": "table", "is_folder": True, "files": 3, "size": None, "identity": ""}
    open_store().save_artifacts([make_artifact(job, target, **fields)])
    assert run("job", "artifact", job.id, "days.parquet").code == 0
    copied = hyperplane.load("days.parquet").compute()
    assert copied["day"].tolist() == list(range(10))
    assert run("job", "artifact", job.id, "days.parquet", "-o", "-").code == 2
    assert run("job", "artifact", job.id, "days.parquet", "--overwrite", "-o", "x").code == 0
    assert run("job", "artifact", job.id, "days.parquet").code == 0  # into the folder that exists
    assert Path("days.parquet/days.parquet").is_dir()
    removed = make_artifact(job, tmp_path / "gone", **fields)
    open_store().save_artifacts([removed])
    answer = run("job", "artifact", job.id, "gone")
    assert answer.code == 1
    assert "nothing is at" in answer.err.replace("\n", " ")


def test_an_object_is_fetched(alone: Path) -> None:
    job = add_job(alone)
    hyperplane.save(b"far", "memory://artifacts/far.bin", mode="overwrite")
    far = Artifact(job.id, "one", -1, 1, "far.bin", "file", url="memory://artifacts/far.bin")
    open_store().save_artifacts([far])
    assert download_artifact(job.id, "far.bin").read_bytes() == b"far"


@pytest.mark.parametrize("address", ["file:///etc/passwd", "local:///etc/passwd", "etc/passwd"])
@pytest.mark.parametrize("is_folder", [False, True])
def test_an_address_of_no_store_copies_no_file_of_this_machine(
    alone: Path, address: str, is_folder: bool
) -> None:
    job = add_job(alone)
    found = Artifact(job.id, "one", -1, 1, "x", "file", url=address, is_folder=is_folder)
    open_store().save_artifacts([found])
    with pytest.raises(JobError, match="leads to files of this machine"):
        download_artifact(job.id, "x")
    assert not Path("x").exists()


@pytest.mark.parametrize("is_folder", [False, True])
def test_missing_credentials_have_advice(
    run: Run, alone: Path, monkeypatch: pytest.MonkeyPatch, is_folder: bool
) -> None:
    botocore = pytest.importorskip("botocore.exceptions")

    class NoKeys(MemoryFileSystem):
        protocol = "nokeys"

        def _fail(self, *arguments: Any, **options: Any) -> Any:
            raise botocore.NoCredentialsError

        open = info = find = ls = cat_file = isfile = exists = _fail

    fsspec.register_implementation("nokeys", NoKeys, clobber=True)
    job = add_job(alone)
    url = "nokeys://bucket/x"
    found = Artifact(job.id, "one", -1, 1, "x", "file", url=url, is_folder=is_folder)
    open_store().save_artifacts([found])
    answer = run("job", "artifact", job.id, "x")
    assert answer.code == 1
    assert "no valid credentials; set those" in answer.err
    assert "Traceback" not in answer.err
    assert not Path("x").exists()


def test_equal_names_need_a_step_or_chunk(run: Run, alone: Path) -> None:
    job = add_job(alone, bash("one", "true"), bash("two", "true", chunks=9))
    for chunk in range(8):
        save(job, f"{chunk}/a.csv", b"x" * chunk, name="a.csv", step="two", chunk=chunk)
    save(job, "a.csv", b"of one")
    answer = run("job", "artifact", job.id, "a.csv")
    assert answer.code == 1
    assert "two [3]" in answer.err
    assert "and 4 more" in answer.err
    assert run("job", "artifact", job.id, "a.csv", "--step", "one", "-o", "-").out == "of one"
    arguments = ("a.csv", "--step", "two", "--chunk", "5", "-o", "-")
    assert run("job", "artifact", job.id, *arguments).out == "xxxxx"
    for chunk, name, expected in (
        (
            "8",
            "a.csv",
            "chunk 8 has no artifact named 'a.csv'; it is an artifact of one, two [0], ",
        ),
        ("8", "b.csv", "chunk 8 has no artifact named 'b.csv'; "),
    ):
        assert expected in run("job", "artifact", job.id, name, "--chunk", chunk).err
    unknown = run("job", "artifact", job.id, "a.csf")
    assert "did you mean a.csv?" in unknown.err


@pytest.mark.parametrize("name", ["../../x.txt", "/etc/x.txt", "a/..", NASTY])
def test_a_name_leads_to_no_other_folder(alone: Path, name: str) -> None:
    job = add_job(alone)
    path = Path(job.folder, "x.txt")
    path.write_text("x")
    open_store().save_artifacts([make_artifact(job, path, name=name)])
    assert download_artifact(job.id, name).parent == Path.cwd()


def test_bad_values_are_reported_together(alone: Path) -> None:
    with pytest.raises(RequestError) as caught:
        download_artifact(
            add_job(alone).id, "", 3, chunk=-1, overwrite="no", storage_options="hunter"
        )
    text = str(caught.value)
    assert "hunter" not in text
    for where in ("name", "file", "chunk", "overwrite", "storage_options"):
        assert f"{where} =" in text


def test_a_cleanup_removes_what_is_in_the_folder_of_the_job_only(
    alone: Path, tmp_path: Path
) -> None:
    job = add_job(alone)
    saved = save(job, "a.txt", b"x")
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("mine")
    open_store().save_artifacts([make_artifact(job, elsewhere)])
    Path(job.folder, "link").symlink_to(elsewhere)
    assert [each.job.id for each in clean_jobs(0)] == [job.id]
    assert not Path(saved.url).exists()
    assert elsewhere.read_text() == "mine"
    assert open_store().artifacts(job.id) == []


@pytest.mark.slow
def test_a_thousand_artifacts_are_listed(run: Run, alone: Path) -> None:
    job = add_job(alone)
    path = Path(job.folder, "x.txt")
    path.write_text("x")
    many = [make_artifact(job, path, name=f"{number:04}.txt") for number in range(1000)]
    open_store().save_artifacts(many)
    assert len(run("job", "artifacts", job.id).out.splitlines()) == 1002
    assert len(run("job", "artifacts", job.id, "--json").json) == 1000
