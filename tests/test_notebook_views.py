"""What a notebook shows of errors, notes, warnings, a cluster and a job that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from kernels import execute

from scripts.notebooks import is_end_of_progress

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.process]

START = """
import logging, time
import hyperplane
from hyperplane.jobs import JobHandle, Pipeline, Step, submit
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=5000
)
"""
CELLS = {
    "start": START,
    "request": "hyperplane.plan_cluster(num_workers=-1)",
    "job error": "def find():\n    return JobHandle('no-such-job')\nfind()",
    "task error": "def divide(number):\n    return 1 / number\nclient.submit(divide, 0).result()",
    "logs": "print('Compute Failed' in str(cluster.get_logs()))",
    "warnings": "logging.getLogger('distributed.nanny.memory').warning(\n"
    "    'Worker tcp://x (pid=1) exceeded 95%% memory budget. Restarting...')\n"
    "logging.getLogger('distributed.scheduler').warning('Removing worker caused a loss')\n"
    "logging.getLogger('hyperplane.guard').warning('the cluster is idle')",
    "cluster": "cluster",
    "submit": "step = Step(name='wait', kind='command', argv=('bash', '-c', 'sleep 3'))\n"
    "job = submit(Pipeline.from_steps('live', [step]))",
    "job": "job",
    "end": "import threading\n"
    "status = job.wait(progress=False)\n"
    "def find_threads():\n    return [each.name for each in threading.enumerate()]\n"
    "until = time.monotonic() + 120\n"  # a slow machine updates outputs more rarely
    "while 'hyperplane-jobs' in find_threads() and time.monotonic() < until:\n"
    "    time.sleep(0.1)\n"
    "print(status, *find_threads(), sep='\\n')",
    "close": "client.close(); cluster.close()",
}
FAILING = ("request", "job error", "task error")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Outputs of all cells, which run in one kernel, without the progress of slow ones."""
    cells = []
    for name, source in CELLS.items():
        cell = nbformat.v4.new_code_cell(source)
        if name in FAILING:
            cell.metadata["tags"] = ["raises-exception"]
        cells.append(cell)
    notebook = nbformat.v4.new_notebook(cells=cells)
    execute(notebook, tmp_path_factory.mktemp("notebook"))
    return {
        name: [each for each in cell.outputs if not is_end_of_progress(each)]
        for name, cell in zip(CELLS, notebook.cells, strict=True)
    }


def read_error(outputs: list[Any]) -> list[str]:
    """Return the traceback of a cell that shows nothing else, without colors."""
    (error,) = outputs
    assert error.output_type == "error"
    return [re.sub(r"\x1b\[[0-9;]*m", "", part) for part in error.traceback]


def test_nothing_is_on_standard_error(outputs: dict[str, list[Any]]) -> None:
    streams = [each for cell in outputs.values() for each in cell if each.get("name") == "stderr"]
    assert streams == []


def test_a_request_has_its_message_first_and_then_the_line_of_the_cell(
    outputs: dict[str, list[Any]],
) -> None:
    message, call = read_error(outputs["request"])
    assert message.startswith("RequestError: 1 fault in the request, nothing was started:\n")
    assert call == ("Cell In[2], line 1\n----> 1 hyperplane.plan_cluster(num_workers=-1)")


def test_an_error_of_a_job_has_no_frame_of_the_package(outputs: dict[str, list[Any]]) -> None:
    parts = read_error(outputs["job error"])
    assert parts[0].startswith("JobError: job no-such-job: no such job")
    assert [part.partition("\n")[0] for part in parts[1:3]] == [
        "Cell In[3], line 3", "Cell In[3], line 2, in find",
    ]  # fmt: skip
    package = str(Path(hyperplane_folder()))
    assert not any(package in part for part in parts)


def hyperplane_folder() -> Path:
    import hyperplane

    return Path(hyperplane.__file__).parent


def test_an_error_of_a_task_leads_to_its_function(outputs: dict[str, list[Any]]) -> None:
    parts = read_error(outputs["task error"])
    text = "\n".join(parts)
    assert parts[-1] == "ZeroDivisionError: division by zero"
    assert "return 1 / number" in text
    assert str(hyperplane_folder()) not in text
    assert "concurrent/futures" not in text
    assert "skipping hidden" not in text
    assert outputs["logs"][0].text == "True\n"


def test_notes_and_warnings_are_plain_outputs(outputs: dict[str, list[Any]]) -> None:
    (note,) = [each for each in outputs["start"] if each.get("metadata")]
    assert note.output_type == "display_data"
    assert note.data["text/plain"].startswith("👉 Hyperplane: ")
    assert note.metadata == {"hyperplane": "note"}
    (warnings,) = outputs["warnings"]
    assert warnings.data["text/plain"].splitlines() == [
        "distributed.scheduler: Removing worker caused a loss", "the cluster is idle",
    ]  # fmt: skip


def test_a_cluster_shows_its_plan_and_what_dask_shows(outputs: dict[str, list[Any]]) -> None:
    (shown,) = outputs["cluster"]
    text = shown.data["text/html"]
    assert "1 of 1 worker processes, 1 thread" in text
    assert re.search(r"local: 1 node, each 1 x 1 threads x [\d.]+ GB", text)
    assert "core-hours" in text
    assert "Dask's view" in text
    assert "GuardedLocalCluster" in text or "LocalCluster" in text


def test_a_job_is_updated_until_it_has_ended(outputs: dict[str, list[Any]]) -> None:
    (shown,) = outputs["job"]
    assert shown.output_type == "display_data"
    assert "1 of 1 done" in shown.data["text/html"]
    assert re.search(r"status +done", shown.data["text/plain"])
    (printed,) = outputs["end"]
    status, *threads = printed.text.splitlines()
    assert status == "done"
    assert "hyperplane-jobs" not in threads
