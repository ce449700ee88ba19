"""The process of a sample ends with everything that it has started, and with its caller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dask
import psutil
import pytest

import hyperplane

pytestmark = pytest.mark.process

PROGRAM = """
import os, sys, time
from pathlib import Path
import dask
import hyperplane

def wait(file):
    Path(file).write_text(str(os.getpid()))
    time.sleep(600)

plan = hyperplane.plan_cluster(
    num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
)
hyperplane.forecast(dask.delayed(wait)(sys.argv[1]), plan)
"""


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def read_pid(file: Path) -> int:
    until(lambda: file.exists() and file.read_text())
    return int(file.read_text())


@pytest.mark.slow
def test_a_sample_ends_with_its_caller(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    caller = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "pid")])
    try:
        pid = read_pid(tmp_path / "pid")
        assert list(tmp_path.glob("hyperplane-forecast-*"))
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait()
    until(lambda: not psutil.pid_exists(pid))
    until(lambda: not list(tmp_path.glob("hyperplane-forecast-*")))


@pytest.mark.slow
def test_programs_that_a_task_starts_end_with_the_sample(tmp_path):
    def start(file):
        child = subprocess.Popen(["sleep", "600"])
        Path(file).write_text(str(child.pid))
        return 1

    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
    )
    found = hyperplane.forecast(dask.delayed(start)(str(tmp_path / "pid")), plan)
    assert not found.refused
    until(lambda: not psutil.pid_exists(read_pid(tmp_path / "pid")))
    assert not list(Path(tempfile.gettempdir()).glob("hyperplane-forecast-*"))


@pytest.mark.slow
def test_modules_of_the_current_folder_replace_no_library(tmp_path, monkeypatch):
    (tmp_path / "psutil.py").write_text("raise ImportError('a module of the current folder')")
    script = tmp_path / "scripts" / "program.py"
    script.parent.mkdir()
    script.write_text(PROGRAM.replace("time.sleep(600)", "pass") + "print('done')")
    monkeypatch.setenv("PYTHONPATH", str(Path(hyperplane.__file__).parents[1]))
    done = subprocess.run(
        [sys.executable, script, tmp_path / "pid"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "done\n"
    assert int((tmp_path / "pid").read_text()) != os.getpid()


def test_the_process_of_a_sample_imports_no_library_that_a_worker_does_not():
    """It is measured before its first task as an empty worker."""
    program = (
        "import sys; import hyperplane.forecasts.sample_process, hyperplane.forecasts.source_files;"
        "print(*{'polars', 'matplotlib', 'bokeh'} & set(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not found.stdout.strip()


SCRIPT = """
import sys
import dask
import numpy
import hyperplane

table = numpy.ones(12_500_000)  # 100 MB

def add(number):
    return number + 1

if __name__ == "__main__":
    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
    )
    job = dask.delayed(add)(1)
    print(hyperplane.forecast(job, plan, history=False).peak)
    client, cluster = hyperplane.start(plan)
    with cluster, client:
        read = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
        print(*client.run(read).values(), job.compute())
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_the_sample_has_the_main_module_of_the_script_as_workers_have(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, check=True, text=True)
    forecast, measured, result = map(int, done.stdout.split())
    assert result == 2
    assert measured > 170e6  # an empty worker of these tests takes less than 100 MB
    assert forecast == pytest.approx(measured, rel=0.15)
