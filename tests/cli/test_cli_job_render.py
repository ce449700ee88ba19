"""``hyperplane job render`` and ``submit --dry-run``: the steps, without running them."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from terminal import Run

from hyperplane.history import RunRecord, WorkerUsage
from hyperplane.jobs.runners.registry import RUNNERS
from hyperplane.jobs.store.jobs_home import open_store, this_machine

PIPELINE = """
pipeline:
  name: shown
  tasks:
  - {name: one, type: bash script, bash_script_path: "a b.sh", env: {LEVEL: hidden-value}}
  - name: two
    type: python
    py_path: two.py
    depends_on: []
    chunks: 4
    max_parallel: 2
    timeout: 90s
    resources: {cores: 2}
    secrets: [API_KEY]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("API_KEY", "s3cret-value")
    (tmp_path / "a b.sh").write_text("echo\n")
    (tmp_path / "two.py").write_text("print()\n")
    (tmp_path / "shown.yaml").write_text(PIPELINE)
    return tmp_path


@pytest.mark.parametrize("command", [["render"], ["submit", "--dry-run"]])
def test_steps_are_shown_and_nothing_is_stored(command: list[str], run: Run, folder: Path) -> None:
    before = len(open_store().find())
    answer = run("job", *command, "shown.yaml", "-p", "month=private")
    assert answer.code == 0
    assert len(open_store().find()) == before
    text = answer.out.replace("\n", "").replace(" ", "")
    assert f"bash'{folder}/ab.sh'" in text.replace("'" + str(folder) + "/a b", "")
    assert "MONTH" in text
    assert "LEVEL" in text
    assert "4,2atonce" in text
    assert "HYPERPLANE_CUSTOM_SECRET_KEY_API_KEY" in text
    for value in ("s3cret-value", "hidden-value", "private"):
        assert value not in text


def test_the_json_document_has_the_arguments_of_each_step(run: Run, folder: Path) -> None:
    shown = run("job", "render", "shown.yaml", "--json", "--timeout=-1").json
    one, two = shown["steps"]
    assert shown["timeout"] == -1
    assert one["argv"] == ["bash", str(folder / "a b.sh")]
    assert two["argv"] == [sys.executable, str(folder / "two.py")]
    assert (one["after"], two["after"], two["chunks"], two["timeout"]) == ([], [], 4, 90)
    assert two["resources"] == {"cores": 2}
    assert "CHUNK_ID" in two["variables"]
    assert "CHUNK_ID" not in one["variables"]
    assert "API_KEY" in two["secret_variables"]


def test_scripts_of_a_scheduler_are_printed_or_written(run: Run, folder: Path) -> None:
    (folder / "plain.sh").write_text("echo\n")
    arguments = ["job", "render", "plain.sh", "--runner", "slurm", "--name", "plain"]
    shown = run(*arguments)
    assert shown.code == 0
    assert "#SBATCH" in shown.out
    answer = run(*arguments, "--out", "scripts", "--json").json
    there = [str(f.relative_to(folder)) for f in (folder / "scripts").glob("[!.]*")]
    assert sorted(answer["written"]) == sorted(there)
    for document in answer["documents"]:
        assert (folder / "scripts" / document["name"]).read_text() == document["text"]


def test_only_files_of_an_earlier_render_are_removed(run: Run, folder: Path) -> None:
    steps = [f"  - {{name: {name}, type: bash, bash_script_path: a.sh}}" for name in "abc"]
    (folder / "a.sh").write_text("echo\n")
    options = ["--runner", "slurm", "--out", "out"]

    def rendered(*names: str, as_json: bool = False) -> Any:
        lines = [step for step in steps if step[11] in names]
        (folder / "p.yaml").write_text("\n".join(["pipeline:", "  name: p", "  tasks:", *lines]))
        answer = run("job", "render", "p.yaml", *options, *["--json"] * as_json)
        assert answer.code == 0
        return answer.json if as_json else answer.err

    out = folder / "out"
    assert rendered("a", "b", "c") == ""
    assert {"000-a.sbatch", "001-b.sbatch", "002-c.sbatch"} < {f.name for f in out.iterdir()}
    (out / "003-mine.sbatch").write_text("#!/bin/bash\n")
    (out / "002-c.sbatch").write_text("mine now\n")
    err = rendered("a")
    assert "removed out/001-b.sbatch, which an earlier render had written\n" in err
    assert "kept out/002-c.sbatch, which an earlier render had written" in err
    there = {f.name for f in out.iterdir() if not f.name.startswith(".")}
    assert there == {"000-a.sbatch", "002-c.sbatch", "003-mine.sbatch", "submit.sh"}
    assert rendered("b", as_json=True)["removed"] == ["out/000-a.sbatch"]
    # A list with other paths does not remove files outside of the folder.
    content = hashlib.sha256((folder / "a.sh").read_bytes()).hexdigest()
    (out / ".hyperplane-rendered").write_text(f"{content}  ../a.sh\n{content}  {folder}/a.sh\n")
    for file in out.glob("[!.]*"):  # the lists of which were not written by a render
        file.unlink()
    assert rendered("b") == ""
    assert (folder / "a.sh").exists()


def test_manifests_are_one_stream_of_yaml(run: Run, folder: Path) -> None:
    pipeline = PIPELINE.split("  - name: two")[0] + (
        '  - {name: two, type: bash script, bash_script_path: "a b.sh"}\n'
    )
    (folder / "plain.yaml").write_text(pipeline)
    options = ["--option", "image=registry.local/a:1", "--option", "root=/data"]
    shown = run("job", "render", "plain.yaml", "--runner", "kubernetes", *options)
    assert shown.code == 0
    found = [document["kind"] for document in yaml.safe_load_all(shown.out) if document]
    assert "Job" in found
    missing = run("job", "render", "plain.yaml", "--runner", "kubernetes")
    assert missing.code == 2
    assert "image" in missing.err


def test_invalid_runners_and_options_are_refused(run: Run) -> None:
    answer = run("job", "render", "shown.yaml", "--runner", "abacus")
    assert answer.code == 2
    assert f"'abacus': expected one of {', '.join(RUNNERS.names())}" in answer.err
    assert run("job", "render", "shown.yaml", "--out", "x").code == 2
    both = run("job", "render", "shown.yaml", "--runner=slurm", "--option=a", "--option==b")
    assert "2 faults" in both.err
    all_options = run("job", "render", "shown.yaml", "--runner=abacus", "-p", "a", "--timeout=soon")
    assert "3 faults" in all_options.err
    unknown = run("job", "render", "shown.yaml", "--runner=slurm", "--option", "imge=x")
    assert unknown.code == 2
    assert "imge" in unknown.err


def test_a_secret_is_required_only_for_submission(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("API_KEY")
    assert run("job", "render", "shown.yaml", "--runner", "slurm").code == 0
    answer = run("job", "submit", "shown.yaml", "--dry-run")
    assert answer.code == 2
    assert "API_KEY" in answer.err


def test_a_file_of_the_user_is_not_overwritten(run: Run, folder: Path) -> None:
    options = ("job", "render", "plain.sh", "--runner", "slurm", "--out", "out")
    (folder / "plain.sh").write_text("echo\n")
    assert run(*options).code == 0
    assert run(*options).code == 0  # the same again
    own = folder / "out" / "submit.sh"
    own.write_text("echo mine\n")
    answer = run(*options)
    assert answer.code == 2
    assert "out/submit.sh: expected a name without a file" in answer.err
    assert own.read_text() == "echo mine\n"


AUTOMATIC = """
pipeline:
  name: nightly
  tasks:
  - name: fit
    type: bash script
    bash_script_path: "a b.sh"
    resources: {pool: auto}
    cluster: {pool: auto, nprocs: 2, ram_gb_per_proc: 1}
"""


@pytest.mark.usefixtures("published_pools")
@pytest.mark.parametrize("command", [["render"], ["submit", "--dry-run"]])
def test_the_pools_that_earlier_runs_choose_are_shown_with_the_reason(
    run: Run, command: list[str], folder: Path
) -> None:
    del folder
    name = f"nightly-{command[0]}"  # the store of jobs is that of all tests
    Path("auto.yaml").write_text(AUTOMATIC.replace("nightly", name))
    text = " ".join(run("job", *command, "auto.yaml").out.split())
    assert "resources.pool: auto is 16_16: no run of this step is recorded" in text
    assert "cluster.pool: auto is 4_32, ram_gb_per_proc 1: no run of its clusters" in text
    usage = WorkerUsage("8_64", limit=58 * 10**9, peak=40 * 10**9, busy_cores=3.0)
    record = RunRecord(
        name="r", cluster="", started=1, ended=2, exit_reason="done", workers=(usage,), job="j",
        pipeline=name, step="fit",
    )  # fmt: skip
    open_store().save_run(record, this_machine())
    shown = run("job", *command, "auto.yaml", "--json").json
    (step,) = shown["steps"]
    assert step["resources"] == {"pool": "8_64"}
    assert step["automatic"][0] == "resources.pool: auto is 8_64: 40 GB at most in 1 earlier run"
