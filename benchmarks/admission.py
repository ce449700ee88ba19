"""Jobs on data larger than the memory of a cluster: plain Dask and hyperplane.

    python -m benchmarks.admission [--times 1 4] [--partition-mb 64] [--jobs sort merge ...]

The data is generated in tasks, in multiples of the memory of the cluster (two processes of 1 GB).
Every run is a separate process with a time limit. The table has the outcome (a wrong answer is an
error), wall and CPU seconds, the highest memory of a worker process and the number of workers that
were lost.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa

from benchmarks.memory_jobs import MEMORY_JOBS

PROCESSES, MEMORY_GB = 2, 1.0
#: Approximate bytes of a row in memory.
ROW = 72
#: Odd, so that multiplication modulo a power of two is a permutation.
FACTOR, MODULUS = 0x1E3779B97F4A7C15, 1 << 62


def make_rows(part: int, rows: int, keys: int) -> pd.DataFrame:
    """Generate one partition; ``id`` is unique and in random order, ``key`` has `keys` values."""
    number = np.arange(part * rows, (part + 1) * rows, dtype=np.uint64)
    ids = ((number * np.uint64(FACTOR)) & np.uint64(MODULUS - 1)).astype(np.int64)
    x = (number % np.uint64(1000)).astype(float)
    text = pa.array(ids % 90_000 + 10_000_000_000).cast(pa.large_string())
    return pd.DataFrame(
        {
            "id": ids,
            "key": ((number * np.uint64(7919)) % np.uint64(keys)).astype(np.int64),
            "few": (number % np.uint64(97)).astype(np.int64),
            "x": x,
            "y": x + 1.0,
            "z": x * 0.5,
            "text": pd.Series(pd.arrays.ArrowStringArray(text)),
        }
    )


class Data:
    """A data frame of about `size_mb` in partitions of about `partition_mb`, not yet computed."""

    def __init__(self, size_mb: float, partition_mb: float) -> None:
        self.rows = int(partition_mb * 1e6 / ROW)
        self.parts = max(1, round(size_mb / partition_mb))
        self.size_mb, self.partition_mb = size_mb, partition_mb
        self.total = self.rows * self.parts
        self.keys = self.total // 20
        self.sum_x = float(499_500 * (self.total // 1000) + sum(range(self.total % 1000)))

    def frame(self) -> Any:
        """Return the data frame."""
        import dask.dataframe as dd

        meta = make_rows(0, 1, 1).iloc[:0]
        parts = range(self.parts)
        return dd.from_map(make_rows, parts, rows=self.rows, keys=self.keys, meta=meta)

    def half(self) -> Data:
        """Return data of half the size, with partitions of the same size."""
        return Data(self.size_mb / 2, self.partition_mb)


def _check(found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"expected {expected}, found {found}")


def _part_figures(part: pd.DataFrame) -> pd.DataFrame:
    ids = part.index if part.index.name == "id" else part["id"]
    low, high = (ids.min(), ids.max()) if len(part) else (0, 0)
    ordered = bool(ids.is_monotonic_increasing)
    figures = {"n": [len(part)], "x": [part["x"].sum()], "low": [low], "high": [high]}
    return pd.DataFrame({**figures, "ordered": [ordered]})


def _check_order(frame: Any, data: Data) -> None:
    meta = {"n": int, "x": float, "low": int, "high": int, "ordered": bool}
    figures = frame.map_partitions(_part_figures, meta=meta).compute()
    filled = figures[figures["n"] > 0]
    _check((filled["n"].sum(), filled["x"].sum()), (data.total, data.sum_x))
    _check(bool(filled["ordered"].all()), True)
    _check(bool((filled["high"].to_numpy()[:-1] < filled["low"].to_numpy()[1:]).all()), True)


def run_sum(data: Data) -> None:
    """Sum two columns."""
    _check(list(data.frame()[["x", "y"]].sum().compute()), [data.sum_x, data.sum_x + data.total])


def run_mean(data: Data) -> None:
    """Mean of a column."""
    _check(data.frame()["x"].mean().compute(), data.sum_x / data.total)


def run_group_few(data: Data) -> None:
    """Group by 97 keys."""
    sums = data.frame().groupby("few")[["x", "y"]].sum().compute()
    _check((len(sums), sums["x"].sum()), (97, data.sum_x))


def run_group_many(data: Data) -> None:
    """Group by a twentieth of the rows."""
    import dask

    sums = data.frame().groupby("key")["x"].sum()
    found = dask.compute(sums.sum(), sums.count())
    _check(found, (data.sum_x, data.keys))


def run_set_index(data: Data) -> None:
    """Set an index of unique keys."""
    _check_order(data.frame().set_index("id"), data)


def run_sort(data: Data) -> None:
    """Sort by unique keys."""
    _check_order(data.frame().sort_values("id"), data)


def run_merge(data: Data) -> None:
    """Join two halves of the data by unique keys."""
    half = data.half()
    right = half.frame()[["id", "x", "y", "z", "text"]]
    joined = half.frame().merge(right, on="id")
    found = joined.assign(n=1)[["x_x", "x_y", "n"]].sum().compute()
    _check(list(found), [half.sum_x, half.sum_x, half.total])


def run_duplicates(data: Data) -> None:
    """Keep a twentieth of the rows."""
    _check(len(data.frame().drop_duplicates(subset=["key"])), data.keys)


def run_rechunk(data: Data) -> None:
    """Rows to columns."""
    import dask.array as da

    columns = 4000
    rows = int(data.partition_mb * 1e6 / 8 / columns)
    total = rows * data.parts
    array = da.map_blocks(
        lambda block_info: np.full(block_info[None]["chunk-shape"], 1.0),
        chunks=((rows,) * data.parts, (columns,)),
        dtype=float,
    )
    width = max(1, int(data.partition_mb * 1e6 / 8 / total))
    turned = array.rechunk((total, width))
    sums = turned.map_blocks(lambda block: block.sum(axis=0), drop_axis=0, dtype=float)
    _check(bool((sums.compute() == total).all()), True)


def run_write(data: Data) -> None:
    """Write Parquet."""
    import pyarrow.dataset

    folder = Path(tempfile.mkdtemp(prefix="admission-"))
    try:
        data.frame().to_parquet(folder)
        _check(pyarrow.dataset.dataset(folder).count_rows(), data.total)
    finally:
        shutil.rmtree(folder)


JOBS: dict[str, Callable[[Data], None]] = {
    "sum": run_sum,
    "mean": run_mean,
    "group_few": run_group_few,
    "group_many": run_group_many,
    "set_index": run_set_index,
    "sort": run_sort,
    "merge": run_merge,
    "duplicates": run_duplicates,
    "rechunk": run_rechunk,
    "write": run_write,
}


@contextmanager
def _start(engine: str) -> Iterator[Any]:
    """Start a cluster; yield its scheduler."""
    if engine == "dask":
        from distributed import Client, LocalCluster

        options: dict[str, Any] = {"memory_limit": int(MEMORY_GB * 1e9)}
        with (
            LocalCluster(
                n_workers=PROCESSES, threads_per_worker=1, dashboard_address=":0", **options
            ) as cluster,
            Client(cluster),
        ):
            yield cluster.scheduler
        return
    import hyperplane

    client, cluster = hyperplane.initialize_cluster(
        num_workers=1,
        nprocs=PROCESSES,
        nthreads=1,
        ram_gb_per_proc=MEMORY_GB,
        local_fit="exact",
        **({} if engine == "hyperplane" else {"tuning": engine}),
    )
    try:
        yield cluster.scheduler
    finally:
        client.close()
        cluster.close()


class _Observer(threading.Thread):
    """Samples the memory of the worker processes and counts the workers that are removed."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(daemon=True)
        from distributed.diagnostics.plugin import SchedulerPlugin

        observer = self

        class Removals(SchedulerPlugin):
            def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
                observer.lost += 1

        self.lost, self.peak, self.paused = 0, 0, 0.0
        self.scheduler = scheduler
        scheduler.add_plugin(Removals(), name="benchmark-removals")
        self._end = threading.Event()

    def run(self) -> None:
        """Sample four times a second; the kernel keeps the peaks in between."""
        while not self._end.wait(0.25):
            for process in psutil.Process().children(recursive=True):
                with suppress(OSError):
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    if "VmHWM:" in status:  # not of a process that has ended
                        peak = status.split("VmHWM:")[1].split(None, 1)[0]
                        self.peak = max(self.peak, int(peak))
            states = [str(each.status) for each in list(self.scheduler.workers.values())]
            self.paused += 0.25 * sum("paused" in state for state in states)

    def end(self) -> dict[str, float]:
        """Return the figures."""
        self._end.set()
        self.join()
        return {"peak_mb": self.peak / 1000, "lost": self.lost, "paused_s": self.paused}


def run_job(job: str, engine: str, size_mb: float, partition_mb: float) -> None:
    """Run one job in this process; print its figures as JSON."""
    from benchmarks.measure import cpu_seconds

    with _start(engine) as scheduler:
        observer = _Observer(scheduler)
        observer.start()

        def figures() -> dict[str, Any]:
            return {
                "wall_s": time.perf_counter() - began,
                "cpu_s": cpu_seconds() - cpu,
                **observer.end(),
            }

        def give_up(*_: object) -> None:
            print(json.dumps({"outcome": "no answer", **figures()}), flush=True)
            os._exit(0)

        signal.signal(signal.SIGTERM, give_up)
        began, cpu = time.perf_counter(), cpu_seconds()
        outcome = "ok"
        try:
            if job in MEMORY_JOBS:
                MEMORY_JOBS[job]()
            else:
                JOBS[job](Data(size_mb, partition_mb))
        except Exception as error:  # noqa: BLE001 - the outcome of the job
            outcome = type(error).__name__
            print(error, file=sys.stderr)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # it has ended, also if the cluster closes
        print(json.dumps({"outcome": outcome, **figures()}), flush=True)


def _end_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def run_in_process(
    job: str, engine: str, size_mb: float, partition_mb: float, limit_s: float
) -> dict[str, Any]:
    """Run one job in a process of its own, and end it after `limit_s`."""
    command = [sys.executable, "-m", "benchmarks.admission", "--one", job, engine]
    command += [str(size_mb), str(partition_mb)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            _end_group(process.pid)
            output, _ = process.communicate()
        errors.seek(0)
        text = errors.read()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    figures: dict[str, Any] = json.loads(lines[-1]) if lines else {"outcome": "no figures"}
    return {**figures, "errors": text[-3000:]}


def main() -> None:
    """Run the jobs of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=float, nargs="+", default=[1, 4])
    parser.add_argument("--partition-mb", type=float, default=64)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=[*JOBS, *MEMORY_JOBS])
    parser.add_argument("--engines", nargs="+", default=["dask", "hyperplane"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=900)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--one", nargs=4, metavar=("JOB", "ENGINE", "MB", "PARTITION_MB"))
    options = parser.parse_args()
    if options.one:
        job, engine, size, partition = options.one
        run_job(job, engine, float(size), float(partition))
        return
    print(
        f"{'job':12}{'times':>6} {'engine':12}{'outcome':>22}{'wall s':>9}{'cpu s':>8}"
        f"{'peak MB':>9}{'lost':>6}{'paused s':>10}",
        flush=True,
    )
    for times in options.times:
        for job in options.jobs:
            for _ in range(options.rounds):
                for engine in options.engines:
                    size = times * PROCESSES * MEMORY_GB * 1000
                    done = run_in_process(job, engine, size, options.partition_mb, options.limit_s)
                    numbers = [
                        done.get(key, 0.0)
                        for key in ("wall_s", "cpu_s", "peak_mb", "lost", "paused_s")
                    ]
                    print(
                        f"{job:12}{times:6g} {engine:12}{done['outcome']:>22}"
                        f"{numbers[0]:9.1f}{numbers[1]:8.1f}{numbers[2]:9.0f}{numbers[3]:6.0f}"
                        f"{numbers[4]:10.1f}",
                        flush=True,
                    )
                    if options.verbose:
                        print(done["errors"], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
