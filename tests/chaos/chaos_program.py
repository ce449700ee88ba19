"""Run jobs with faults, one after the other, and print a line of JSON about each.

It is a program, so that its owner can be killed; ``chaos_runs.py`` starts it. Its argument is JSON
with the schedules and the arguments of the clusters.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

import chaos_jobs
import chaos_worker
import dask.config
import psutil
from chaos_faults import FaultInjector
from chaos_proxy import WorkerProxy
from chaos_runs import find_files
from chaos_schedule import ENDING, ChaosSchedule, PlannedFault

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask.local import forkserver
from hyperplane.clusters.dask.remote_process import as_variables
from hyperplane.errors import HyperplaneError

RIGHT, WRONG = "right result", "wrong result"
OURS, OF_DASK, OTHER = "error of hyperplane", "error of Dask", "other error"
NO_ANSWER, NOT_USABLE, NOT_CLOSED, LEFT = "no answer", "not usable", "not closed", "left behind"
GONE = "owner killed"
#: Seconds within which a cluster without faults answers and closes.
SOON = 60.0


def classify(error: BaseException) -> str:
    """Return the kind of an error that a job has raised."""
    if isinstance(error, HyperplaneError):
        return OURS
    module = type(error).__module__.partition(".")[0]
    is_of_dask = module in ("distributed", "dask") or isinstance(
        error, CancelledError | TimeoutError | ConnectionError
    )
    # Dask's errors of a shuffle are of class RuntimeError.
    if is_of_dask or (isinstance(error, RuntimeError) and "P2P" in str(error)):
        return OF_DASK
    return OTHER


def say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class Watchdog:
    """Reports a run without an answer, and ends this process."""

    def __init__(self, seed: int, injector: FaultInjector | None, state: Any) -> None:
        self.seed, self.injector, self.state = seed, injector, state
        self.outcome = NO_ANSWER
        self._timer: threading.Timer | None = None

    def expect(self, outcome: str, seconds: float) -> None:
        """End the process with an outcome unless :meth:`expect` is called again in time."""
        self.cancel()
        self.outcome = outcome
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        happened = self.injector.happened if self.injector is not None else []
        detail = ""
        with suppress(Exception):
            detail = self.state()
        say(seed=self.seed, outcome=self.outcome, detail=detail, happened=happened)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(3)


class ChaosProgram:
    """Runs schedules with clusters of one engine.

    Parameters
    ----------
    options : mapping
        ``plan`` has the arguments of ``plan_cluster``, ``settings`` Dask's settings, ``work`` the
        folder for results, ``disk`` a small file system or None, ``limit`` the seconds for a job,
        ``keeps_forkserver`` whether clusters share one. The others are those of ``EngineSetup``.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.work = Path(options["work"])
        self.calm: dict[str, tuple[Any, int, float]] = {}
        if options["keeps_forkserver"]:
            # Each cluster would start another one, which takes most of a run.
            assert forkserver.acquire(["dask.dataframe"], forkserver._pre_spawn_variables())
        self.kept = set(self._find_files())
        self.kept_processes = {each.pid for each in _children()}

    def run(self, schedule: ChaosSchedule) -> None:
        folder = Path(tempfile.mkdtemp(prefix="c", dir=self.work))
        (folder / "pids").mkdir()
        chaos_worker.create_clocks(folder)
        if not hasattr(self, "followed"):
            self.followed = folder
            chaos_worker.follow_clock(folder, chaos_worker.CLOCKS - 1)
        began = time.monotonic()
        watchdog = Watchdog(schedule.seed, None, lambda: "during the start")
        watchdog.expect(NO_ANSWER, 120)
        with WorkerProxy(self.options["host"]).running() as proxy:
            preload = [str(Path(chaos_worker.__file__))]
            settings = {
                "chaos.folder": str(folder),
                "chaos.proxy": [proxy.host, proxy.port],
                "distributed.worker.preload": preload,
                "distributed.scheduler.preload": preload if self.options["remote"] else [],
            }
            # Jobs of Slurm have the variables of this process, but not its settings.
            os.environ.update(as_variables(settings))
            with dask.config.set({**self.options["settings"], **settings}):
                line = self._run_on_cluster(schedule, folder, proxy, watchdog)
        watchdog.expect(LEFT, SOON)
        left = self._find_rest()
        watchdog.cancel()
        if left and line["outcome"] not in (WRONG, OTHER, NOT_USABLE):
            line = {**line, "outcome": LEFT, "detail": f"{left}; {line['detail']}"}
        process = psutil.Process()
        say(
            seed=schedule.seed,
            seconds=round(time.monotonic() - began, 1),
            descriptors=process.num_fds(),
            threads=threading.active_count(),
            memory=process.memory_info().rss,
            **line,
        )

    def _run_on_cluster(
        self, schedule: ChaosSchedule, folder: Path, proxy: WorkerProxy, watchdog: Watchdog
    ) -> dict[str, Any]:
        began = time.monotonic()
        plan = hyperplane.plan_cluster(**self.options["plan"])
        client, cluster = hyperplane.start(plan)
        started = time.monotonic() - began
        disk = self.options["disk"]
        injector = FaultInjector(
            client, cluster, folder, proxy, disk and Path(disk), plan.dask_workers
        )
        counts = not self.options["remote"]
        if counts:
            cluster.scheduler.add_plugin(injector.finished)
        watchdog.injector, watchdog.state = injector, lambda: describe_scheduler(cluster)
        job = chaos_jobs.JOBS[schedule.job]
        if schedule.job not in self.calm:
            watchdog.expect(NO_ANSWER, 120)
            began = time.monotonic()
            expected = job(client, self.work)
            seconds = time.monotonic() - began
            self.calm[schedule.job] = expected, injector.finished.count, seconds
        expected, tasks, seconds = self.calm[schedule.job]
        if schedule.job == "save":
            chaos_jobs.prepare_saved(self.work)
        watchdog.expect(NO_ANSWER, self.options["limit"])
        began = time.monotonic()
        injector.begin(schedule.faults, tasks if counts else 0, seconds)
        outcome, detail = self._run_job(job, client, expected)
        took = time.monotonic() - began
        watchdog.expect(NO_ANSWER, SOON)
        injector.end()
        if schedule.job == "save" and outcome != RIGHT:
            found = chaos_jobs.read_saved(self.work)
            if found not in (expected, chaos_jobs.digest(chaos_jobs.OLD)):
                outcome, detail = WRONG, f"saved: {found} after {detail}"
        if not ENDING & {fault.kind for fault in schedule.faults}:
            watchdog.expect(NOT_USABLE, SOON)
            try:
                assert client.submit(sum, [1, 2], pure=False).result(timeout=SOON - 5) == 3
            except Exception as error:  # noqa: BLE001 - any error is an outcome
                outcome, detail = NOT_USABLE, f"{error!r}; {describe_scheduler(cluster)}; {detail}"
        watchdog.expect(NOT_CLOSED, SOON)
        began = time.monotonic()
        try:
            client.close()
            cluster.close()
        except Exception as error:  # noqa: BLE001 - any error is an outcome
            outcome, detail = NOT_CLOSED, f"{error!r}; {detail}"
        return {
            "outcome": outcome,
            "detail": detail,
            "happened": injector.happened,
            "took": round(took, 2),
            "calm": round(seconds, 2),
            "start": round(started, 2),
            "close": round(time.monotonic() - began, 2),
        }

    def _run_job(self, job: Any, client: Any, expected: Any) -> tuple[str, str]:
        try:
            found = job(client, self.work)
        except Exception as error:  # noqa: BLE001 - any error is an outcome
            kind = classify(error)
            text = f"{type(error).__name__}: {error}"[:400]
            return kind, "".join(traceback.format_exception(error)) if kind == OTHER else text
        if found == expected:
            return RIGHT, ""
        return WRONG, f"{found} in place of {expected}"

    def end(self) -> None:
        """End the forkserver, if it was kept, and check that nothing is left."""
        if self.options["keeps_forkserver"]:
            forkserver.release()
            self.kept, self.kept_processes = set(), set()
            if left := self._find_rest():
                raise AssertionError(f"left behind: {left}")

    def _find_files(self) -> list[Path]:
        return find_files(Path(tempfile.gettempdir()), self.options["scratch_space"])

    def _find_rest(self) -> list[str]:
        """Return what is left of a cluster, after some time to end."""
        deadline = time.monotonic() + SOON / 2
        while True:
            left = [
                " ".join(each.cmdline())[-120:]
                for each in _children()
                if each.pid not in self.kept_processes and not _is_tracker(each)
            ]
            left += map(str, set(self._find_files()) - self.kept)
            # Other programs of this user may have clusters.
            mine = [each for each in records.read_all(starting=True) if each.pid == os.getpid()]
            left += [record.name for record in mine]
            if not left or time.monotonic() > deadline:
                return left[:10]
            time.sleep(0.1)


def _is_tracker(process: psutil.Process) -> bool:
    return "resource_tracker" in " ".join(process.cmdline())


def _children() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                process.cmdline()
                found.append(process)
    return found


def describe_scheduler(cluster: Any) -> str:
    """Return the state of a scheduler in this process in one line."""
    scheduler = cluster.scheduler
    if not hasattr(scheduler, "tasks"):
        return f"cluster {cluster.status.name}"
    states = Counter(task.state for task in scheduler.tasks.values())
    workers = {
        str(worker.name): [worker.status.name, len(worker.processing)]
        for worker in scheduler.workers.values()
    }
    return f"cluster {cluster.status.name}, tasks {dict(states)}, workers {workers}"


def main() -> None:
    faulthandler.enable()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    options = json.loads(sys.argv[1])
    program = ChaosProgram(options)
    for each in options["schedules"]:
        faults = tuple(PlannedFault(**fault) for fault in each["faults"])
        schedule = ChaosSchedule(each["seed"], each["job"], faults)
        say(seed=schedule.seed, begins=True)
        try:
            program.run(schedule)
        except Exception as error:  # noqa: BLE001 - reported, and the next run begins
            traceback.print_exc()
            say(seed=schedule.seed, outcome=OTHER, detail=f"{error!r}", happened=[])
    program.end()


if __name__ == "__main__":
    main()
