"""The log of a step has no secrets while it is written, whatever happens to the supervisor."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from job_cases import LIMIT, bash, kill_supervisor, submit_job, until_exists, wait_until

from hyperplane.jobs import JobHandle, step_wrapper
from hyperplane.jobs.store.job_records import DONE

pytestmark = pytest.mark.process

SECRET = "hunter2-of-this-test"
VARIABLES = {"HYPERPLANE_CUSTOM_SECRET_KEY_API_TOKEN": SECRET, "API_TOKEN": SECRET}


def run_wrapper(folder, text, **variables):
    """Run a text of bash in the wrapper of steps; return its log."""
    log = folder / "attempt-1.log"
    with log.open("wb") as output:
        subprocess.run(
            [sys.executable, "-I", "-S", step_wrapper.__file__, str(folder / "attempt-1"),
             "bash", "-c", text],
            stdout=output, stderr=output, check=False, env={**os.environ, **variables},
        )  # fmt: skip
    return log.read_text()


@pytest.mark.slow
def test_a_secret_is_masked_that_the_next_supervisor_does_not_have(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("API_TOKEN", SECRET)
    begun, go = tmp_path / "begun", tmp_path / "go"
    text = f'echo "first $API_TOKEN"; touch {begun}; {until_exists(go)}; echo "last $API_TOKEN"'
    job = submit_job(bash("uses", text, secrets=("API_TOKEN",)))
    wait_until(begun.exists)
    assert kill_supervisor()
    monkeypatch.delenv("API_TOKEN")
    go.touch()
    assert JobHandle(job.id).wait(LIMIT) == DONE
    hidden = "*" * len(SECRET)
    assert job.logs("uses") == f"first {hidden}\nlast {hidden}\n"


def test_a_log_never_has_the_secret(tmp_path):
    seen = tmp_path / "seen"
    text = (
        f'echo "it is ${{API_TOKEN:0:9}}" | head -c -1; cat {tmp_path}/attempt-1.log > {seen}; '
        'echo "${API_TOKEN:9}."; echo "$API_TOKEN" >&2; false'
    )
    hidden = "*" * len(SECRET)
    assert run_wrapper(tmp_path, text, **VARIABLES) == f"it is {hidden}.\n{hidden}\n"
    assert SECRET[:9] not in seen.read_text()
    assert int((tmp_path / "attempt-1.exit").read_text()) == 1


def test_the_beginning_of_a_secret_at_the_end_is_written(tmp_path):
    log = run_wrapper(tmp_path, 'printf "it is ${API_TOKEN:0:9}"', **VARIABLES)
    assert log == f"it is {SECRET[:9]}"


def test_a_program_that_outlives_the_step_writes_no_secret(tmp_path):
    go = tmp_path / "go"
    text = f'({until_exists(go)}; echo "late $API_TOKEN") & setsid sleep 0; echo early'
    assert run_wrapper(tmp_path, f"setsid -w bash -c {shlex.quote(text)}", **VARIABLES) == "early\n"
    go.touch()
    deadline = time.monotonic() + 120
    expected = f"early\nlate {'*' * len(SECRET)}\n"
    while (log := (tmp_path / "attempt-1.log").read_text()) != expected:
        assert time.monotonic() < deadline, log
        time.sleep(0.02)


def test_an_executed_notebook_is_masked_at_the_end_of_the_step(tmp_path):
    notebook = tmp_path / "executed.ipynb"
    document = {"cells": [{"outputs": [{"text": f"it is {SECRET}"}]}]}
    notebook.write_text(json.dumps(document))
    run_wrapper(tmp_path, "kill -9 $$", **VARIABLES, HYPERPLANE_JOB_NOTEBOOK=str(notebook))
    masked = json.loads(notebook.read_text())
    assert masked["cells"][0]["outputs"][0]["text"] == f"it is {'*' * len(SECRET)}"
    assert int((tmp_path / "attempt-1.exit").read_text()) == -9


@pytest.mark.parametrize("depth", [600, 900])
def test_a_deeply_nested_notebook_does_not_hide_the_exit_code(tmp_path, depth):
    notebook = tmp_path / "executed.ipynb"
    nested = "[" * depth + "]" * depth
    notebook.write_text(f'{{"cells": [{{"outputs": [{{"data": {nested}, "text": "{SECRET}"}}]}}]}}')
    run_wrapper(tmp_path, "exit 3", **VARIABLES, HYPERPLANE_JOB_NOTEBOOK=str(notebook))
    assert int((tmp_path / "attempt-1.exit").read_text()) == 3
    assert SECRET not in notebook.read_text()


def test_an_error_of_the_masking_does_not_hide_the_exit_code(monkeypatch, capfd):
    def redact_file(*_):
        raise MemoryError(SECRET)

    module = SimpleNamespace(redact_file=redact_file)
    monkeypatch.setattr(step_wrapper, "_import_redaction", lambda: module)
    monkeypatch.setenv(step_wrapper.NOTEBOOK_VARIABLE, "executed.ipynb")
    step_wrapper._mask_notebook({SECRET})
    assert capfd.readouterr().err == "executed.ipynb: MemoryError\n"


def test_a_secret_is_masked_as_shells_quote_it(tmp_path):
    secret = "pa'ss$w&ord<1"
    variables = {"HYPERPLANE_CUSTOM_SECRET_KEY_API_TOKEN": secret, "API_TOKEN": secret}
    program = "import os, shlex; print(shlex.join(['login', os.environ['API_TOKEN']]))"
    text = f"export -p | grep API_TOKEN; {shlex.quote(sys.executable)} -c {shlex.quote(program)}"
    log = run_wrapper(tmp_path, text, **variables)
    assert log.count("***") >= 3
    assert "ord" not in log
    assert "login '*" in log


def test_a_missing_notebook_does_not_hide_the_exit_code(tmp_path):
    (tmp_path / "folder.ipynb").mkdir()
    variables = {**VARIABLES, "HYPERPLANE_JOB_NOTEBOOK": str(tmp_path / "folder.ipynb")}
    assert "folder.ipynb: Is a directory" in run_wrapper(tmp_path, "exit 3", **variables)
    assert int((tmp_path / "attempt-1.exit").read_text()) == 3
