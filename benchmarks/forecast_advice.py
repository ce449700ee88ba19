"""Start the layout that a forecast advises for this machine, and one with less memory.

    python -m benchmarks.forecast_advice [--json FILE] [WORKLOAD ...]

Each job of ``benchmarks.forecast`` is forecast once. It is run on a cluster of the advised layout
and on one with the memory of each process divided by 1.5. A run has spilled if results were written
to disk for lack of memory, paused if a worker started no tasks for some time for lack of it, and
died if a worker process ended or the job failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hyperplane
from benchmarks.forecast import FOLDER, WORKLOADS, make_data

#: Divisor of the memory of a process in the second run.
LESS = 1.5
#: Least memory of a process with which a cluster is started.
LEAST_GB = 0.2


def _read_worker(dask_worker: Any) -> dict[str, Any]:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    spilled = dask_worker.data.cumulative_metrics.get(("disk-write", "bytes"), 0)
    # Each worker has its own log; those of former runs are of other processes.
    logs = [message for _, message in dask_worker.get_logs()]
    return {
        "peak": int(peak.split()[1]) * 1024,
        "spilled": spilled,
        "paused": any("Pausing worker" in each for each in logs),
        "pid": os.getpid(),
    }


def run(make: Callable[[], Any], plan: hyperplane.ClusterPlan) -> dict[str, Any]:
    """Run a job on a cluster; return what its workers took, and the outcome in words."""
    for folder in ("written", "sorted"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
    client, cluster = hyperplane.start(plan)
    error = ""
    try:
        before = client.run(_read_worker)
        began = time.perf_counter()
        try:
            client.compute(make()).result(600)
        except Exception as failure:  # noqa: BLE001 - any error is an outcome
            error = type(failure).__name__
        wall = time.perf_counter() - began
        after = client.run(_read_worker)
    finally:
        client.close()
        cluster.close()
    pids = {each["pid"] for each in before.values()}
    died = bool(error) or pids != {each["pid"] for each in after.values()}
    spilled = sum(each["spilled"] for each in after.values())
    paused = any(each["paused"] for each in after.values())
    words = [
        *([f"died ({error or 'a worker ended'})"] if died else []),
        *([f"spilled {spilled / 1e6:.0f} MB"] if spilled else []),
        *(["paused"] if paused else []),
    ]
    return {
        "peak": max((each["peak"] for each in after.values()), default=0),
        "wall": wall,
        "spilled": spilled,
        "paused": paused,
        "died": died,
        "outcome": ", ".join(words) or "finished",
    }


def compare(name: str) -> dict[str, Any]:
    """Forecast a job, start the advised layout and one with less memory, and return both."""
    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=6, cores_per_worker=2, engine="local",
        local_fit="exact", preflight=False,
    )  # fmt: skip
    found = hyperplane.forecast(WORKLOADS[name](), plan)
    if found.job is None:
        return {"name": name, "refused": found.reasons}
    try:
        advice = found.advise(local=True)
    except hyperplane.errors.RequestError as error:
        return {"name": name, "refused": [str(error)]}
    ram = advice.worker.ram_gb_per_proc
    options = {"oom": "raise", "preflight": False, "local_fit": "exact"}
    advised = hyperplane.plan_cluster(advice, **options)
    less = hyperplane.plan_cluster(
        num_workers=1, engine="local", nprocs=advice.worker.nprocs,
        nthreads=advice.worker.nthreads, ram_gb_per_proc=max(LEAST_GB, ram / LESS),
        cores_per_worker=advice.worker.cores_per_worker, **options,
    )  # fmt: skip
    assert (advised.worker.nprocs, advised.worker.ram_per_proc) == (
        advice.worker.nprocs, advice.worker.ram_per_proc,
    )  # fmt: skip
    return {
        "name": name,
        "layout": f"{advice.worker.nprocs}x{advice.worker.nthreads}",
        "ram_gb": ram,
        "peak": advice.option.peak,
        "high": advice.option.high,
        "seconds": advice.option.seconds,
        "left_out": advice.left_out,
        "advised": run(WORKLOADS[name], advised),
        "less": run(WORKLOADS[name], less),
    }


def _line(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"| `{row['name']}` | refused: {row['refused'][0]} |"
    advised, less = row["advised"], row["less"]
    return (
        f"| `{row['name']}` | {row['layout']} | {row['ram_gb']:.2f} "
        f"| {row['peak'] / 1e6:.0f} to {row['high'] / 1e6:.0f} | {advised['peak'] / 1e6:.0f} "
        f"| {advised['outcome']} | {less['outcome']} |"
    )


def main() -> None:
    """Print a table of all workloads and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], metavar="WORKLOAD")
    parser.add_argument("--json", type=Path, help="file to which figures are added")
    arguments = parser.parse_args()
    make_data()
    print(
        "| job | layout | GB per process | peak and upper end, MB | measured MB | advised | less |"
    )
    print("|---" * 7 + "|")
    rows = []
    for name in arguments.workloads or WORKLOADS:
        rows.append(compare(name))
        print(_line(rows[-1]), flush=True)
        if arguments.json:
            with arguments.json.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    ran = [row for row in rows if "refused" not in row]
    finished = sum(row["advised"]["outcome"] == "finished" for row in ran)
    short = sum(bool(row["less"]["spilled"] or row["less"]["died"]) for row in ran)
    paused = sum(row["less"]["outcome"] == "paused" for row in ran)
    print(
        f"{finished} of {len(ran)} finished on the advised layout without spilling or a pause; "
        f"with memory / {LESS:g} {short} spilled or died, and {paused} more paused"
    )


if __name__ == "__main__":
    main()
