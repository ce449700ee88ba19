"""Programs of the shapes that were published for this API run from top to bottom.

The programs beside this file are our own; docs/reference/published-programs.md names the published
ones. Each runs in a separate process and folder, without a main guard, as a notebook's cells.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from published_lines import LOGS
from scale import FULL, scaled
from shared_forkserver import PRELOAD
from slack_server import TOKEN, serve

from hyperplane import jobs

pytestmark = pytest.mark.usefixtures("usual_preload")
HERE = Path(__file__).parent


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, HERE / program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.fixture
def slack():
    server, close = serve()
    yield server
    close()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
    "program",
    ["parallel_loop.py", *scaled([], ["group_and_sort.py", "batch_inference.py"])],
)
def test_a_program_with_a_cluster_runs_from_top_to_bottom(program: str, tmp_path: Path) -> None:
    # Without dataframes, workers need no imports in advance, which take two seconds.
    settings = {PRELOAD: "[]"} if program == "parallel_loop.py" else {}
    done = run(program, tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == LOGS


def secrets(folder: Path, name: str, user: str) -> None:
    (folder / name).mkdir()
    known = {env: {"user": f"{user}-{env}"} for env in ("dev", "prod")}
    (folder / name / "warehouse.json").write_text(json.dumps(known))


@pytest.mark.slow
@pytest.mark.process
def test_a_script_that_is_a_session_and_a_step(tmp_path, monkeypatch, slack):
    secrets(tmp_path, "session_secrets", "person")
    secrets(tmp_path, "job_secrets", "robot")
    settings = {"SLACK_TOKEN": TOKEN, "DASK_HYPERPLANE__SLACK__API": slack.url}
    alone = run("nightly_load.py", tmp_path, **settings)
    assert alone.returncode == 0, alone.stderr
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "env": "dev", "full": "incremental", "user": "person-dev", "session": True,
    }  # fmt: skip
    assert len(slack.requests) == 2

    # As published: the file in a folder, its paths from the root of the repository.
    place = tmp_path / "pipelines" / "load"
    place.mkdir(parents=True)
    (place / "load.py").write_text((HERE / "nightly_load.py").read_text())
    (place / "pipeline.yaml").write_text(
        'pipeline:\n  name: "nightly load"\n  job_type: "basic"  \n  tasks:\n'
        '    - name: "Run Python Script"\n      type: "vscode notebook"\n'
        '      py_path: "pipelines/load/load.py"'
    )
    monkeypatch.chdir(tmp_path)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.warns(UserWarning, match="paths are relative to"):
        job = jobs.submit(
            "pipelines/load/pipeline.yaml", parameters={"env": "prod", "build_flag": ""}
        )
    assert job.wait(200) == "done", job.logs()
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "env": "prod", "full": "incremental", "user": "robot-prod", "session": False,
    }  # fmt: skip
    assert len(slack.requests) == 4


@pytest.mark.skipif(not FULL, reason="tests of jobs run notebooks, and dependencies: at full scale")
@pytest.mark.process
def test_notebooks_that_depend_on_each_other(tmp_path, monkeypatch):
    """A parameters cell, a step without an output path, and one that depends on two."""
    monkeypatch.chdir(tmp_path)
    for number in (1, 2, 3):
        cells = [
            nbformat.v4.new_code_cell("year = '199*'", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(
                f"open('order.txt', 'a').write(f'step{number} {{year}}\\n');"
            ),
        ]
        kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
        nbformat.write(notebook, f"step{number}.ipynb")
    steps = [
        ("first", 1, 'notebook_output_path: "step1_output.ipynb"'),
        ("second", 2, 'depends_on: ["first"]'),
        ("last", 3, 'depends_on: ["first", "second"]'),
    ]
    Path("dag.yaml").write_text(
        'pipeline:\n  name: "Example pipeline steps"\n  tasks:\n'
        + "".join(
            f'  - name: "{name}"\n    type: "jupyter notebook"\n'
            f'    notebook_path: "step{number}.ipynb"\n    {rest}\n'
            for name, number, rest in steps
        )
    )
    job = jobs.submit("dag.yaml", parameters={"year": "1990"})
    assert job.wait(200) == "done", job.logs()
    assert Path("order.txt").read_text().split("\n")[:3] == [
        "step1 1990", "step2 1990", "step3 1990",
    ]  # fmt: skip
    assert Path("step1_output.ipynb").exists()
