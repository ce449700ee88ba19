"""Artifacts of jobs that run: what steps save is attached to the run when an attempt has ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from artifact_cases import PNG, notebook
from job_cases import LIMIT, bash, kill_supervisor, run_job, submit_job, wait_until

from hyperplane.jobs import Pipeline, Step, list_artifacts, submit
from hyperplane.jobs.artifact_files import open_artifact
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED
from hyperplane.reports import render_job_report

pytestmark = [pytest.mark.process, pytest.mark.slow]

SAVE = """
import asyncio, pathlib, os
import pandas as pd
import hyperplane
from hyperplane import notebook_common

hyperplane.save(pd.DataFrame({"day": [1, 2]}), "days.parquet")
hyperplane.save(b"far", "memory://far.bin")
asyncio.run(notebook_common.set_current_job_output("forty-two"))
outputs = pathlib.Path(os.environ["HYPERPLANE_JOB_OUTPUT_FOLDER"])
(outputs / "figures").mkdir()
(outputs / "figures" / "plot.svg").write_text("<svg/>")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def named(job):
    return {each.name: each for each in job.artifacts()}


def read(artifact):
    with open_artifact(artifact) as opened:
        return opened.read()


def test_what_a_script_saves_is_attached_to_its_run(folder):
    (folder / "save.py").write_text(SAVE)
    job = run_job(Step(name="save", kind="python", path="save.py"), bash("rest", "true"))
    assert job.status == DONE, job.logs()
    found = named(job)
    kinds = {"days.parquet": "table", "figures/plot.svg": "picture", "output": "output"}
    assert {name: each.kind for name, each in found.items()} == kinds
    assert {(each.step, each.attempt) for each in found.values()} == {("save", 1)}
    assert found["days.parquet"].rows == 2
    assert read(found["figures/plot.svg"]) == b"<svg/>"
    report = render_job_report(job.id)
    for expected in ("days.parquet", "forty-two", "data:image/svg+xml;base64,"):
        assert expected in report
    assert "figures/plot.svg" in job._repr_html_()
    assert list_artifacts(job.id, "rest") == []
    empty = [path for path in Path(job.job.folder).glob("steps/*rest*/*") if path.is_dir()]
    assert empty == []


def test_failed_attempts_and_retries_have_artifacts():
    code = (
        'cd "$HYPERPLANE_JOB_OUTPUT_FOLDER"; echo $RANDOM > own.$HYPERPLANE_JOB_STEP.txt; '
        f"echo x >> {Path.cwd()}/tries; wc -l < {Path.cwd()}/tries > all.txt; exit 75"
    )
    job = run_job(bash("one", code, retries=1), max_retries=0)
    assert job.status == FAILED
    found = named(job)
    assert {name: each.attempt for name, each in found.items()} == {
        "own.one.txt": 2, "all.txt": 2
    }  # fmt: skip
    assert read(found["all.txt"]).strip() == b"2"


def test_chunks_have_artifacts_of_the_same_name():
    text = 'echo $CHUNK_ID > "$HYPERPLANE_JOB_OUTPUT_FOLDER/n.txt"'
    job = run_job(bash("fan", text, chunks=3))
    contents = {each.chunk: read(each) for each in job.artifacts("fan")}
    assert contents == {0: b"0\n", 1: b"1\n", 2: b"2\n"}


def test_an_executed_notebook_and_what_it_saves_are_attached(folder):
    document = json.loads(notebook())
    document["cells"][1]["source"] = "import hyperplane\nhyperplane.save(b'x', 'nb.bin').files"
    (folder / "a.ipynb").write_text(json.dumps(document))
    job = submit(Pipeline.from_steps("p", [Step(name="n", kind="notebook", path="a.ipynb")]))
    assert job.wait(LIMIT) == DONE, job.logs()
    found = named(job)
    assert {name: each.kind for name, each in found.items()} == {
        "a.ipynb": "notebook", "nb.bin": "file"
    }  # fmt: skip
    outputs = json.loads(read(found["a.ipynb"]))["cells"][-1]["outputs"]
    assert outputs[0]["data"]["text/plain"] == ["1"]


def test_secrets_are_masked_before_a_notebook_is_attached(folder, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "hunter2-hunter2")
    document = json.loads(notebook())
    document["cells"][1]["source"] = "import os\nos.environ['API_TOKEN']"
    (folder / "a.ipynb").write_text(json.dumps(document))
    step = Step(name="n", kind="notebook", path="a.ipynb", secrets=("API_TOKEN",))
    job = submit(Pipeline.from_steps("p", [step]))
    assert job.wait(LIMIT) == DONE, job.logs()
    content = read(named(job)["a.ipynb"])
    assert b"hunter2" not in content
    assert b"***" in content


def test_an_output_that_was_set_last_counts(folder):
    script = (
        "from hyperplane.jobs.job_output import set_output; import sys; set_output(sys.argv[1])"
    )
    steps = [
        Step(name=name, kind="command", argv=(sys.executable, "-c", script, name), depends_on=needs)
        for name, needs in (("one", ()), ("two", ("one",)))
    ]
    job = run_job(*steps)
    assert job.status == DONE, job.logs()
    found = job.artifacts()
    assert [(each.name, each.step, each.size) for each in found] == [("output", "two", 3)]


def test_an_output_of_chunks_is_attached_to_each_run_also_if_it_was_saved_before(folder):
    code = (
        "import hyperplane, pandas; i, n = hyperplane.shard(); "
        "hyperplane.save(pandas.DataFrame({'a': range(i + 1)}), 'all.parquet', shard=(i, n))"
    )
    argv = (sys.executable, "-c", code)
    step = Step(name="fan", kind="command", argv=argv, chunks=2, output="all.parquet")
    for rows in (3, None):
        job = run_job(step)
        assert job.status == DONE, job.logs()
        [whole] = job.artifacts()
        assert (whole.name, whole.chunk, whole.rows) == ("all.parquet", -1, rows)
        assert whole.url == str(folder / "all.parquet")
    assert {each.reason for each in job.attempts} == {"its shard was already saved"}


def test_a_cancelled_attempt_has_artifacts(folder):
    begun = folder / "begun"
    text = f'echo x > "$HYPERPLANE_JOB_OUTPUT_FOLDER/a.txt"; touch {begun}; sleep 600'
    job = submit_job(bash("one", text))
    wait_until(begun.exists)
    assert job.artifacts() == []
    job.cancel()
    assert job.wait(LIMIT) == CANCELLED
    assert list(named(job)) == ["a.txt"]


def test_secrets_are_masked_after_the_supervisor_of_a_cancelled_job_was_killed(folder, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "hunter2-hunter2")
    begun = folder / "begun"
    text = (
        'echo "token $API_TOKEN"; echo x > "$HYPERPLANE_JOB_OUTPUT_FOLDER/a.txt"; '
        f"touch {begun}; sleep 600"
    )
    job = submit_job(bash("one", text, secrets=("API_TOKEN",)))
    wait_until(begun.exists)
    wait_until(lambda: "token" in job.logs())
    kill_supervisor()
    job.cancel()
    assert job.wait(LIMIT) == CANCELLED
    assert "hunter2" not in job.logs()
    assert "token ***" in job.logs()
    assert list(named(job)) == ["a.txt"]


def test_many_files_are_attached(folder):
    text = 'cd "$HYPERPLANE_JOB_OUTPUT_FOLDER"; for n in $(seq 1 2005); do echo $n > $n.txt; done'
    job = run_job(bash("one", text))
    assert job.status == DONE
    assert len(job.artifacts()) == 2000
    assert "5 saved files not recorded as artifacts" in job.logs()


def test_a_picture_is_in_the_report(folder):
    (folder / "plot.png").write_bytes(PNG)
    job = run_job(bash("one", f'cp {folder}/plot.png "$HYPERPLANE_JOB_OUTPUT_FOLDER"'))
    assert "data:image/png;base64," in render_job_report(job.id)
