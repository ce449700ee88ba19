"""Searches whose processes are killed at random moments, and that are called again."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest
from scale import FULL

from hyperplane.errors import RequestError
from hyperplane.ml import read_search
from hyperplane.ml.search import search_storage

TRIALS = 40
PROGRAM = """
import os, random, sys, time
from hyperplane import plan_cluster, start
from hyperplane.ml import Range, tune

def objective(values):
    time.sleep(random.uniform(0.05, 0.3))
    with open(sys.argv[1], "a") as file:
        file.write(f"{values['x']!r} {os.getpid()}\\n")
    return values["x"]

if __name__ == "__main__":
    client, cluster = start(plan_cluster(1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5))
    print("started", flush=True)
    result = tune(objective, {"x": Range(0.0, 1.0)}, search=sys.argv[2], name=sys.argv[3],
                  max_trials=40, seed=3)
    print(result.history["state"].value_counts()["complete"], flush=True)
    client.close(); cluster.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not FULL, reason="test_tuning.py and test_job_trials.py kill, too: at full scale"
)
@pytest.mark.process
@pytest.mark.parametrize("killed", ["client", "worker", "both"])
@pytest.mark.parametrize("number", range(3))
def test_no_trial_that_has_ended_runs_again(tmp_path, number, killed):
    program, log = tmp_path / "search.py", tmp_path / "log"
    program.write_text(PROGRAM)
    log.touch()
    name = f"killed-{killed}-{number}"
    command = [sys.executable, program, log, ("bayesian", "random")[number % 2], name]
    recorded, lost = {}, 0
    process = _call(command)
    if killed != "client":
        for _ in range(random.randint(1, 2)):
            time.sleep(random.uniform(0.3, 1.5))
            lost += _kill_a_worker(log)
            recorded |= _count_recorded(name, log)
    if killed != "worker":
        time.sleep(random.uniform(0.3, 2.5))
        _kill_with_workers(process)
        lost += 2  # one trial in each worker
        recorded |= _count_recorded(name, log)
        process = _call(command)
    output, _ = process.communicate(timeout=240)
    assert output.split() == [str(TRIALS)]
    runs = _count_runs(log)
    assert {value: runs[value] for value in recorded} == recorded
    assert len(runs) == TRIALS
    # A worker may be killed between the end of the function and the write of its result.
    assert runs.total() <= TRIALS + lost


def _call(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "started\n"
    return process


def _kill_with_workers(process):
    """Kill the process of a client, and wait until its workers have ended, too."""
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def _kill_a_worker(log):
    """Kill the worker of the last trial that ended; return the number of killed workers."""
    lines = log.read_text().splitlines()
    if not lines:
        return 0
    try:
        os.kill(int(lines[-1].split()[1]), signal.SIGKILL)
    except ProcessLookupError:  # the search has ended
        return 0
    return 1


def _count_runs(log):
    return Counter(line.split()[0] for line in log.read_text().splitlines())


def _count_recorded(name, log):
    """Return how often the trials have run whose results are in files or in the database."""
    folder = search_storage.search_folder(name)
    # Files first: their results move to the database.
    written = {int(file.stem.removeprefix("trial-")) for file in folder.glob("trial-*.json")}
    try:
        history = read_search(name).history
    except RequestError:  # the search has not begun
        return {}
    if "params.x" not in history:  # no trial has drawn its values
        return {}
    is_recorded = (history["state"] == "complete") | history["trial"].isin(written)
    runs = _count_runs(log)
    return {repr(value): runs[repr(value)] for value in history.loc[is_recorded, "params.x"]}
