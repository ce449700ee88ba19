"""Pipeline jobs: overhead of a step, of a submission and of a notebook.

- A pipeline of ``--steps`` sequential steps of ``true`` against as many calls of
  ``subprocess.run``, alternating; the overhead of a step is the difference.
- From ``submit`` to the start of the first step, with and without a running supervisor.
- A notebook as a job against the command line of papermill.
- ``--many`` jobs of ``sleep 0.1``, with at most 100 pending or in progress.

    python benchmarks/jobs.py --rounds 5 --steps 50 --many 2000
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def _steps(count: int) -> float:
    from hyperplane.jobs import Pipeline, Step, submit

    steps = [Step(name=f"s{i}", kind="command", argv=("true",)) for i in range(count)]
    job = submit(Pipeline.from_steps("steps", steps))
    assert job.wait(600) == "done"
    return job.job.ended - job.job.started


def _bare(count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        subprocess.run(["true"], check=True)
    return time.perf_counter() - began


def _to_start() -> tuple[float, float]:
    """Return the seconds of ``submit``, and the seconds until the first step runs."""
    from hyperplane.jobs import Pipeline, Step, submit

    began = time.time()
    job = submit(Pipeline.from_steps("one", [Step(name="one", kind="command", argv=("true",))]))
    submitted = time.time() - began
    assert job.wait(60) == "done"
    return submitted, job.attempts[0].started - began


def _notebook(folder: Path) -> Path:
    import nbformat

    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [
        nbformat.v4.new_code_cell('year = "1990"', metadata={"tags": ["parameters"]}),
        *(nbformat.v4.new_code_cell(f"import time; time.sleep(0.1); {i}") for i in range(10)),
    ]
    nbformat.write(notebook, folder / "in.ipynb")
    return folder / "in.ipynb"


def _as_job(notebook: Path) -> float:
    from hyperplane.jobs import submit

    began = time.perf_counter()
    assert submit(notebook, parameters={"year": "1991"}).wait(120) == "done"
    return time.perf_counter() - began


def _papermill(notebook: Path) -> float:
    began = time.perf_counter()
    output = notebook.with_name("out.ipynb")
    command = [sys.executable, "-m", "papermill", notebook, output, "-r", "year", "1991"]
    subprocess.run([*command, "--no-progress-bar"], check=True, capture_output=True)
    return time.perf_counter() - began


def _many(count: int, at_most: int = 100) -> dict[str, float]:
    from hyperplane.jobs import Pipeline, Step, submit
    from hyperplane.jobs.store.job_records import OPEN
    from hyperplane.jobs.store.jobs_home import open_store

    pipeline = Pipeline.from_steps("m", [Step(name="s", kind="command", argv=("sleep", "0.1"))])
    store, began, submitting = open_store(), time.perf_counter(), 0.0
    jobs = []
    while len(jobs) < count:
        free = at_most - len(store.find(statuses=OPEN))
        for _ in range(min(free, count - len(jobs))):
            before = time.perf_counter()
            jobs.append(submit(pipeline, parameters={"number": len(jobs)}))
            submitting += time.perf_counter() - before
        time.sleep(0.02)
    assert {job.wait(600) for job in jobs} == {"done"}
    spent = time.perf_counter() - began
    return {"time [s]": spent, "jobs per s": count / spent, "submit [ms]": submitting / count * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--many", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DASK_HYPERPLANE__JOBS__HOME"] = f"{folder}/jobs"
        os.environ["DASK_HYPERPLANE__JOBS__LINGER"] = "3s"
        os.environ["DASK_HYPERPLANE__JOBS__STEPS_AT_ONCE"] = "100"
        os.chdir(folder)
        cold = _to_start()
        notebook = _notebook(Path(folder))
        figures_by_name: dict[str, list[float]] = {}
        for _ in range(arguments.rounds):
            for name, figure in (
                ("bare", _bare(arguments.steps)),
                ("steps", _steps(arguments.steps)),
                ("submit", (warm := _to_start())[0]),
                ("to start", warm[1]),
                ("papermill", _papermill(notebook)),
                ("notebook", _as_job(notebook)),
            ):
                figures_by_name.setdefault(name, []).append(figure)
        medians = {name: statistics.median(figures) for name, figures in figures_by_name.items()}
        figures = {
            "overhead per step [ms]": (medians["steps"] - medians["bare"]) / arguments.steps * 1e3,
            "submit, first [s]": cold[0],
            "submit to start, first [s]": cold[1],
            "submit [s]": medians["submit"],
            "submit to start [s]": medians["to start"],
            "notebook [s]": medians["notebook"],
            "papermill [s]": medians["papermill"],
            "notebook / papermill": medians["notebook"] / medians["papermill"],
        }
        if arguments.many:
            figures |= {f"{arguments.many} jobs, {k}": v for k, v in _many(arguments.many).items()}
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=1))
        time.sleep(4)  # until the supervisor has exited


if __name__ == "__main__":
    main()
