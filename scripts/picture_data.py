"""Sample jobs, clusters and records of the pictures: fixed times, sizes and names.

Nothing here depends on the machine that takes the pictures.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from nbformat import v4, write

from hyperplane.clusters.cluster_listing import ClusterListing
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.history import (
    PlanSummary,
    RunRecord,
    RunTimeline,
    TaskGroupTimes,
    TaskUsage,
    WorkerTimeline,
    WorkerUsage,
)
from hyperplane.history.run_record import new_run_name
from hyperplane.jobs import Artifact, Job, Pipeline, Step
from hyperplane.jobs.artifact_files import identify
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.artifact_records import find_suffix, kind_of_file
from hyperplane.jobs.store.job_records import DONE, FAILED, IN_PROGRESS, Attempt
from hyperplane.ui.live_cluster import LiveCluster

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

#: Seconds since 1970 of the events of the sample jobs.
BEGAN = 1_779_948_000.0
#: Time at which the pictures are taken.
NOW = BEGAN + 7000
#: Id of the job that has failed.
JOB = "5f0c2a9e-7d41-4b1f-9a53-0c6d1f2b8e77"
#: Name of the record of a cluster that has ended.
RECORD = new_run_name("flights", BEGAN)
_DAY = 86_400
_MACHINE = "ada@login"
_LOG = """\
read 120 of 120 files of /data/flights
Traceback (most recent call last):
  File "/home/ada/flights/fit.py", line 31, in <module>
    model.fit(frame[FEATURES], frame["delay"])
ValueError: Input X contains NaN.
"""


def make_jobs(folder: Path) -> tuple[Job, list[Attempt], list[Job]]:
    """Return a job that has failed, its attempts, and a list of jobs."""
    (folder / "report.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4}')
    (folder / "fit.log").write_text(_LOG)

    steps = [
        _command("load"),
        _command("clean", "load", chunks=12),
        _command("weather"),
        _command("join", "clean", "weather"),
        _command("fit", "join"),
        _command("score", "join"),
        Step(name="report", kind="notebook", path="report.ipynb", output_path="out/report.ipynb",
             depends_on=("fit", "score")),
    ]  # fmt: skip
    job = new_job(Pipeline.from_steps("flights", steps, root=str(folder)), name="nightly")
    job = replace(
        job, id=JOB, folder=str(folder), status=FAILED, number=30,
        reason="step fit: exit code 1: ValueError: Input X contains NaN.", machine=_MACHINE,
        submitted=BEGAN, started=BEGAN + 1, ended=BEGAN + 754,
    )  # fmt: skip

    def attempt(step: str, begin: float, end: float, status: str = DONE, **fields: int) -> Attempt:
        reason = "exit code 1: ValueError: Input X contains NaN." if status == FAILED else ""
        return Attempt(
            job.id, step, fields.get("chunk", -1), fields.get("number", 1), status,
            BEGAN + begin, BEGAN + end, reason=reason, log=f"{step}.log",
        )  # fmt: skip

    attempts = [
        attempt("load", 1, 42),
        attempt("weather", 1, 9.5),
        *(
            attempt("clean", 42 + 20 * number, 75 + 20 * number, chunk=number)
            for number in range(12)
        ),
        attempt("join", 300, 620),
        attempt("score", 620, 688),
        attempt("fit", 620, 671, FAILED),
        attempt("fit", 700, 754, FAILED, number=2),
    ]
    jobs = [
        replace(job, id="c1e07b52-", number=31, status=IN_PROGRESS, ended=0.0, reason="",
                dashboard="http://127.0.0.1:8787/status", submitted=BEGAN + 86400,
                started=BEGAN + 86401),
        job,
        replace(job, id="93d7f6a0-", number=29, status=DONE, reason="", submitted=BEGAN - 86400,
                started=BEGAN - 86399, ended=BEGAN - 85200),
    ]  # fmt: skip
    return job, attempts, jobs


def make_artifacts(job: Job, folder: Path) -> list[Artifact]:
    """Return what the steps of a job have saved, with the files."""
    rows = {
        "carrier": ["UA", "AA", "B6", "DL", "EV"],
        "flights": [58_665, 32_729, 54_635, 48_110, 54_173],
        "delay": [12.1, 8.6, 13.0, 9.3, 19.9],
    }
    frame = pd.DataFrame(rows)
    frame.to_parquet(folder / "delays.parquet")
    axes = frame.plot.bar("carrier", "delay", legend=False, ylabel="minutes", figsize=(5, 2.4))
    axes.figure.savefig(folder / "delays.png", bbox_inches="tight")
    (folder / "summary.txt").write_text("12.6 minutes on average\n")
    found = []
    for number, (name, step) in enumerate(
        {"delays.parquet": "join", "delays.png": "score", "summary.txt": "score"}.items()
    ):
        path = str(folder / name)
        identity = identify(path)
        size = None if identity is None else identity.size
        count = len(frame) if number == 0 else None
        found.append(Artifact(
            job.id, step, -1, 1, name, kind_of_file(name), find_suffix(name), path, size, count,
            created=BEGAN + 600 + 20 * number, identity=str(identity or ""),
        ))  # fmt: skip
    return found


def make_notebook(job: Job, folder: Path) -> Artifact:
    """Return the executed notebook of a step, with the picture of :func:`make_artifacts`."""
    picture = base64.b64encode((folder / "delays.png").read_bytes()).decode()
    outputs = [
        v4.new_output("stream", name="stdout", text="read 5 rows of delays.parquet\n"),
        v4.new_output("display_data", data={"image/png": picture, "text/plain": "<Axes>"}),
    ]
    cells = [
        v4.new_markdown_cell("# Delays\n\nMinutes after the planned departure, by carrier."),
        v4.new_code_cell(
            'delays = pd.read_parquet("delays.parquet")\n'
            'print(f"read {len(delays)} rows of delays.parquet")\n'
            'delays.plot.bar("carrier", "delay", legend=False, ylabel="minutes")',
            outputs=outputs, execution_count=1,
        ),
    ]  # fmt: skip
    path = folder / "delays.ipynb"
    write(v4.new_notebook(cells=cells), path)
    identity = identify(str(path))
    assert identity is not None  # noqa: S101 - for mypy: it was written here
    return Artifact(
        job.id, "score", -1, 1, path.name, kind_of_file(path.name), find_suffix(path.name),
        str(path), identity.size, created=BEGAN + 680, identity=str(identity),
    )  # fmt: skip


def make_cluster() -> tuple[ClusterRecord, LiveCluster]:
    """Return a running cluster of two nodes, and what it takes."""
    workers = [
        [min(size, 2_300_000_000) for size in range(200_000_000, 2_900_000_000, 24_000_000)],
        [1_500_000_000 + 400_000_000 * (part // 9 % 3) for part in range(112)],
        [1_200_000_000 + 300_000_000 * (part // 14 % 2) for part in range(112)],
        [1_400_000_000 + 200_000_000 * (part // 7 % 4) for part in range(112)],
    ]
    timeline = RunTimeline(
        BEGAN, 60.0, [sum(sizes) for sizes in zip(*workers, strict=False)],
        [0] * 100 + [900_000_000] * 12, [4] * 112,
        [
            WorkerTimeline(str(number), memory, *([[(5600, 6000)], [(5200, 6720)]] * (not number)))
            for number, memory in enumerate(workers)
        ],
        [
            TaskGroupTimes("read-parquet", 40, 2900, 240, 0, 9800),
            TaskGroupTimes("assign", 300, 3100, 240, 0, 1900),
            TaskGroupTimes("groupby-aggregate", 3100, 6600, 96, 0, 12000),
        ],
    )  # fmt: skip
    plan = PlanSummary(
        engine="slurm", framework="dask", pool="16_16", nodes=2, max_nodes=2, nprocs=2, nthreads=7,
        ram_per_proc=2_500_000_000, spill=0.7, pause=0.8, terminate=0.95, budget="5 USD",
    )  # fmt: skip
    run = RunRecord(
        name=new_run_name("flights", BEGAN), cluster="flights", started=BEGAN, ended=BEGAN + 6720,
        exit_reason="closed", plan=plan, timeline=timeline, program="flights.ipynb",
        versions={"hyperplane": "0.2.0", "python": "3.11.7", "dask": "2026.8.0"},
        tasks=(
            TaskUsage("groupby-aggregate", 96, 0, 12000.0, 190.0, 6_000_000_000, 90_000_000,
                      48_000_000_000, 640_000_000, 2_300_000_000),
            TaskUsage("read-parquet", 240, 0, 9800.0, 71.0, 48_000_000_000, 210_000_000, 0, 0,
                      1_900_000_000),
            TaskUsage("assign", 240, 0, 1900.0, 12.0, 48_000_000_000, 210_000_000,
                      48_000_000_000, 210_000_000, 1_800_000_000),
        ),
        workers=(
            WorkerUsage("0", 7, plan.ram_per_proc, 2_300_000_000, 3_200_000_000, 900_000_000, 400.0,
                        1520.0, cpu_seconds=5900.0, read=12_000_000_000),
            *(WorkerUsage(str(number), 7, plan.ram_per_proc, max(workers[number]),
                          cpu_seconds=6100.0 - 90 * number, read=12_000_000_000)
              for number in (1, 2, 3)),
        ),
    )  # fmt: skip
    record = ClusterRecord(
        "flights", "slurm", "tls://10.1.0.7:8786", "http://127.0.0.1:8787/flights/status", 4711,
        1.0, 4, 28, 10.0,
    )  # fmt: skip
    return record, LiveCluster(run, "USD", 0.24)


def make_records() -> list[RunRecord]:
    """Return records of clusters that have ended, the newest first."""
    _, live = make_cluster()
    ended = {"flights": (0, 6720, 1.0), "weather": (86_400, 412, 0.4), "fit": (172_800, 2310, 0.7)}
    records = []
    for cluster, (before, seconds, share) in ended.items():
        began = BEGAN - before
        records.append(
            live.record.model_copy(
                update={
                    "name": new_run_name(cluster, began),
                    "cluster": cluster,
                    "started": began,
                    "ended": began + seconds,
                    "program": "" if cluster == "fit" else f"{cluster}.ipynb",
                    "workers": tuple(
                        replace(worker, peak=int(share * worker.peak))
                        for worker in live.record.workers
                    ),
                }
            )
        )
    return records


def fill_store(store: JobStore, folder: Path) -> None:
    """Add runs of two pipelines: thirty nightly ones, a failed and a running one, and others."""
    job, attempts, _ = make_jobs(folder)
    weather = new_job(Pipeline.from_steps("weather", [_command("load")], root=str(folder)))
    for day in range(29, 0, -1):
        submitted = BEGAN - day * _DAY
        seconds = 640 + 9 * (29 - day) + 130 * (day % 7 == 3)
        store.add(
            replace(
                job, id=_make_id(day), status=DONE, reason="", schedule="flights-at-six",
                submitted=submitted, started=submitted + 1, ended=submitted + seconds,
            )
        )  # fmt: skip
    for hour in range(5, -2, -1):
        submitted = BEGAN + 300 - 3600 * hour
        store.add(
            replace(
                weather, id=_make_id(100 + hour), status=DONE, machine=_MACHINE,
                schedule="weather-each-hour",
                folder=str(folder), submitted=submitted, started=submitted + 1,
                ended=submitted + 40 + 3 * hour,
            )
        )  # fmt: skip
    store.add(replace(job, schedule="flights-at-six"))
    for attempt in attempts:
        store.save_attempt(attempt)
    store.add(
        replace(
            job, id=_make_id(200), status=IN_PROGRESS, reason="", started=NOW - 90,
            submitted=NOW - 91, ended=0.0,
        )
    )  # fmt: skip


def _make_id(number: int) -> str:
    """Return an id that looks like one of a job, and is the same each time."""
    digits = hashlib.sha256(str(number).encode()).hexdigest()
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]])


def _command(name: str, *before: str, **options: Any) -> Step:
    return Step(name=name, kind="command", argv=("true",), depends_on=before, **options)


#: Lines of a crontab, by the names of their schedules.
SCHEDULES = {
    "flights-at-six": "0 6 * * * cd /data && hyperplane job submit flights.yaml",
    "weather-each-hour": "5 * * * * cd /data && hyperplane job submit weather.yaml",
}


def list_clusters() -> list[ClusterRecord]:
    """Return the clusters that run."""
    slurm, _ = make_cluster()
    dashboard = "http://127.0.0.1:8788/weather/status"
    local = ClusterRecord(
        "weather", "local", "tcp://127.0.0.1:8786", dashboard, 4823, 1.0, 2, 4, 4.0
    )
    return [slurm, local]


def list_clusters_elsewhere() -> ClusterListing:
    """Return the clusters that platforms list, and the platform that did not answer."""
    clusters = (
        ListedCluster(
            "flights-dev", "kubernetes", "namespace ada", "running", "2026-05-28T06:02:11Z"
        ),
        ListedCluster("prices", "ray:slurm", "Slurm", "4 RUNNING", "2026-05-28T05:40:32"),
        ListedCluster("weather", "slurm", "Slurm", "2 PENDING, 2 RUNNING", "2026-05-28T07:51:09"),
    )
    return ClusterListing(clusters, ())
