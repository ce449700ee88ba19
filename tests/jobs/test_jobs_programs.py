"""Kinds of steps: notebooks, scripts, functions; their environment and secrets."""

from __future__ import annotations

import os
import stat
import subprocess
import zipfile
from pathlib import Path

import nbformat
import pytest
from job_cases import LIMIT, bash, run_job, submit_job

import hyperplane
from hyperplane.errors import JobFailed, RequestError
from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.jobs.execution.requirements import INSTALL_STEP
from hyperplane.jobs.store.job_records import DONE, FAILED

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def notebook(path, *cells, tagged=None):
    document = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "3", "language": "python"}}
    )
    if tagged is not None:
        document.cells.append(nbformat.v4.new_code_cell(tagged, metadata={"tags": ["parameters"]}))
    document.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(document, path)


@pytest.mark.slow
def test_a_notebook_gets_its_parameters_and_is_saved_with_its_outputs(tmp_path):
    notebook(tmp_path / "year.ipynb", "print('year', year)", tagged='year = "199*"')
    step = Step(name="nb", kind="notebook", path="year.ipynb", output_path="out/year.ipynb")
    job = run_job(step, parameters={"year": 'it\'s "1990"'})
    assert job.status == DONE, job.logs()
    done = nbformat.read(tmp_path / "out" / "year.ipynb", as_version=4)
    assert [cell.metadata.get("tags") for cell in done.cells[:2]] == [
        ["parameters"],
        ["injected-parameters"],
    ]
    assert done.cells[2].outputs[0].text == 'year it\'s "1990"\n'
    # On a busy machine libzmq may complain when the kernel ends.
    assert job.logs().splitlines()[0] == 'year it\'s "1990"'
    assert [file.read_text() for file in job.job.folder_path.rglob("*.progress")] == ["3/3"]


def test_a_notebook_that_fails_shows_the_cell(tmp_path):
    notebook(tmp_path / "bad {x}.ipynb", "a = 1", "int('one')", "never = 1")
    job = run_job(Step(name="nb", kind="notebook", path="bad {x}.ipynb"))
    assert (job.status, len(job.attempts), job.attempts[0].fault) == (FAILED, 1, "input")
    (executed,) = job.job.folder_path.rglob("bad {x}.ipynb")
    document = nbformat.read(executed, as_version=4)
    errors = [
        cell.source
        for cell in document.cells
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    ]
    assert errors == ["int('one')"]
    assert "invalid literal" in job.job.reason


def test_javascript_runs_with_the_node_on_the_path(tmp_path):
    (tmp_path / "a.js").write_text("console.log(process.env.YEAR)")
    fake = tmp_path / "bin" / "node"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "node got $1 and $YEAR"\n')
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        job = run_job(Step(name="js", kind="javascript", path="a.js"), parameters={"year": 1990})
    assert job.logs() == f"node got {tmp_path / 'a.js'} and 1990\n"


def test_a_function_is_submitted_and_its_result_comes_back():
    table = {"a": [1, 2]}

    @hyperplane.job(max_retries=0)
    def double(columns, *, times=2):
        if times < 0:
            raise ValueError("not so few")
        return {name: value * times for name, value in columns.items()}

    assert double(table) == {"a": [1, 2, 1, 2]}
    assert double.submit(table, times=3).result(LIMIT) == {"a": [1, 2] * 3}
    with pytest.raises(JobFailed, match="not so few"):
        double.submit(table, times=-1).result(LIMIT)


def test_steps_run_in_the_environment_of_the_submission(monkeypatch):
    for colour in ("red", "green"):
        monkeypatch.setenv("COLOUR_OF_TEST", colour)
        assert (
            run_job(bash("show", "echo $COLOUR_OF_TEST $KIND", env={"KIND": "own"})).logs()
            == f"{colour} own\n"
        )


def test_a_secret_is_only_in_the_environment_of_its_step(tmp_path, monkeypatch, jobs_apart):
    monkeypatch.setenv("DB_PASSWORD", "s3cr3t-of-this-test")
    text = (
        'echo "$DB_PASSWORD" | sha256sum; echo "it is $DB_PASSWORD."; '
        "ps axww > ps.txt; [ $HYPERPLANE_CUSTOM_SECRET_KEY_DB_PASSWORD = $DB_PASSWORD ]"
    )
    job = run_job(
        bash("uses", text, secrets=("DB_PASSWORD",)),
        bash("other", 'echo "[$DB_PASSWORD]"'),
        max_retries=0,
    )
    assert job.status == DONE
    assert job.logs("other") == "[]\n"
    assert "it is *******************." in job.logs("uses")
    # In another process: SQLite loses its locks when this one closes the database file.
    command = ["grep", "-rl", "s3cr3t-of-this-test", jobs_apart]
    completed = subprocess.run(
        command, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": os.environ["PATH"]}
    )
    assert completed.stdout == ""
    # Only files that an exiting supervisor removes meanwhile may be missing.
    gone = ": No such file or directory"
    assert [line for line in completed.stderr.splitlines() if not line.endswith(gone)] == []
    assert "s3cr3t-of-this-test" not in (tmp_path / "ps.txt").read_text()
    with pytest.raises(RequestError, match="an existing secret"):
        submit_job(bash("uses", "true", secrets=("NO_SUCH_SECRET",)))


def test_a_secret_may_be_a_file(tmp_path, monkeypatch):
    (tmp_path / "secrets" / "db").mkdir(parents=True)
    (tmp_path / "secrets" / "db" / "password").write_text("from a file\n")
    from hyperplane.jobs.execution.step_environment import find_secrets, secret_variables

    values, missing = find_secrets(["db/password", "none"], {}, str(tmp_path / "secrets"))
    assert (values, missing) == ({"db/password": "from a file"}, ["none"])
    assert secret_variables(values)["HYPERPLANE_CUSTOM_SECRET_KEY_DB_PASSWORD"] == "from a file"


def test_state_and_logs_are_readable_only_by_their_owner(jobs_apart):
    job = run_job(bash("show", "echo hello"))
    logs = Path(job.job.folder_path, job.attempts[0].log).parent
    for path in (jobs_apart / "jobs.db", job.job.folder_path, logs):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.slow
def test_requirements_are_installed_once_in_a_separate_environment(tmp_path):
    # A wheel, as building one takes a second.
    wheel = tmp_path / "hp_probe_package-1.0-py3-none-any.whl"
    information = "hp_probe_package-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hp_probe_package.py", "value = 41\n")
        archive.writestr(
            f"{information}/METADATA",
            "Metadata-Version: 2.1\nName: hp-probe-package\nVersion: 1.0\n",
        )
        archive.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{information}/RECORD",
            f"hp_probe_package.py,,\n{information}/METADATA,,\n{information}/WHEEL,,\n"
            f"{information}/RECORD,,\n",
        )
    (tmp_path / "requirements.txt").write_text(f"{wheel}\n")
    (tmp_path / "use.py").write_text("import hp_probe_package as p, psutil; print(p.value + 1)")
    step = Step(name="use", kind="python", path="use.py")
    pipeline = Pipeline.from_steps("test", [step], requirements="requirements.txt")
    for times in range(2):
        job = submit(pipeline, max_retries=0)
        job.wait(LIMIT)
        assert job.status == DONE, job.logs()
        assert job.logs("use") == "42\n"
        assert ("Successfully installed" in job.logs(INSTALL_STEP)) is (times == 0)
    with pytest.raises(ImportError):
        __import__("hp_probe_package")
