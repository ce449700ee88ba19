"""A pipeline job whose steps compute on local clusters, while any of its processes is killed.

The job ends done with the right output, or fails with a reason and is done after ``resume``; no
process is left. ``HYPERPLANE_CHAOS_SEED=7`` repeats the run of one seed.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from chaos_scale import LONG, chaos_scaled
from chaos_schedule import requested_seeds
from job_cases import is_alive, kill_supervisor, submit_job, wait_until
from scale import FULL

import hyperplane
from hyperplane.clusters import records
from hyperplane.jobs import Step, supervisor_client
from hyperplane.jobs.store.job_records import DONE, FAILED, IN_PROGRESS

pytestmark = [pytest.mark.process, pytest.mark.cluster, pytest.mark.slow]

SEEDS = chaos_scaled([0], list(range(12)))
CHUNKS = 2
#: Seconds for a job on a busy machine, with all of its restarts.
LIMIT = 400.0
#: Of each chunk: groups computed on a separate cluster, and saved.
CHUNK = """
import os, sys, time
import dask.dataframe as dd, pandas as pd
import hyperplane
number = int(os.environ["CHUNK_ID"])
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact", dashboard_port=0
)
with cluster, client:
    def make(part):
        import time
        time.sleep(0.1)
        rows = range(part * 100, part * 100 + 100)
        return pd.DataFrame({"key": [row % 10 for row in rows], "value": rows})
    meta = pd.DataFrame({"key": [1], "value": [1]})
    df = dd.from_map(make, range(number * 8, number * 8 + 8), meta=meta)
    found = hyperplane.dataframe.group_agg(df, "key", {"value": "sum"})
    hyperplane.save(found.reset_index(), sys.argv[1] + f"/{number}", mode="overwrite",
                    format="parquet")
"""
#: The sum of all chunks.
TOTAL = """
import sys
import pandas as pd
import hyperplane
parts = [hyperplane.load(sys.argv[1] + f"/{number}").compute(scheduler="sync")
         for number in range(2)]
total = pd.concat(parts).groupby("key").value.sum().reset_index()
hyperplane.save(total, sys.argv[1] + "/total.parquet", mode="overwrite")
"""
VICTIMS = ("process", "supervisor", "process", "all", "stop")


def submit(folder: Path) -> Any:
    program = {name: folder / f"{name}.py" for name in ("chunk", "total")}
    for name, text in (("chunk", CHUNK), ("total", TOTAL)):
        program[name].write_text(text)

    def step(name: str, **options: Any) -> Step:
        words = (sys.executable, str(program[name]), str(folder))
        return Step(name=name, kind="command", argv=words, retries=5, **options)

    return submit_job(step("chunk", chunks=CHUNKS, max_parallel=CHUNKS), step("total"))


def processes_of(job: Any) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HYPERPLANE_JOB_ID") == job.id and is_alive(process.pid):
                found.append(process)
        except psutil.Error:
            continue
    return found


def strike(job: Any, victim: str, dice: random.Random) -> str:
    """Make a fault happen to a job; return what happened."""
    killed = victim in ("supervisor", "all") and kill_supervisor()
    processes = processes_of(job)
    if victim == "supervisor" or not processes:
        if killed:
            supervisor_client.notify_supervisor()  # as the next command of the user does
        return victim
    chosen = processes if victim == "all" else [dice.choice(processes)]
    names = [each.name() for each in chosen]
    for each in chosen:
        try:
            each.send_signal(signal.SIGSTOP if victim == "stop" else signal.SIGKILL)
            if victim == "stop":
                time.sleep(2)
                each.send_signal(signal.SIGCONT)
        except psutil.NoSuchProcess:
            continue
    if killed:
        supervisor_client.notify_supervisor()
    return f"{victim}: {names}"


@pytest.mark.skipif(not (FULL or LONG), reason="kills a supervisor in mid-job: at full scale")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", requested_seeds(SEEDS))
def test_a_job_with_killed_processes_ends_done_and_leaves_nothing(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Sockets need a short path.
    private = Path(tempfile.mkdtemp(prefix="cj-"))
    monkeypatch.setenv("TMPDIR", str(private))
    dice = random.Random(f"job {seed}")
    before = {record.name for record in records.read_all(starting=True)}
    job = submit(tmp_path)
    happened = []
    for _ in range(chaos_scaled(1, 3)):
        wait_until(lambda: processes_of(job) or job.status != IN_PROGRESS, LIMIT)
        time.sleep(dice.uniform(0.0, 4.0))
        happened.append(strike(job, dice.choice(VICTIMS), dice))
    said = f"HYPERPLANE_CHAOS_SEED={seed}: {happened}"
    status = job.wait(LIMIT)
    if status == FAILED:
        assert job.job.reason, said
        status = job.resume().wait(LIMIT)
    assert status == DONE, (said, job.job.reason)
    total = hyperplane.load(tmp_path / "total.parquet")
    total = total.compute(scheduler="sync") if hasattr(total, "compute") else total
    rows = range(1600)
    expected = pd.DataFrame({"key": [row % 10 for row in rows], "value": rows})
    expected = expected.groupby("key").value.sum().reset_index()
    assert total.astype("int64").to_dict("list") == expected.to_dict("list"), said
    wait_until(lambda: not processes_of(job), 60)
    # Reading the records removes the files of killed owners.
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    assert {record.name for record in records.read_all(starting=True)} <= before, said
    left = [path for path in private.rglob("*") if path.is_file()]
    assert left == [], said
    monkeypatch.undo()
    shutil.rmtree(private)
