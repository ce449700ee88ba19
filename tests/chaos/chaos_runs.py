"""Start programs that run jobs with faults, and check what they leave behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from chaos_schedule import ChaosSchedule

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 3,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
    "dashboard_port": 0,
    # Detected earlier than usual, so that runs are short.
    "engine_options": {"worker_ttl": "8s"},
}
#: Outcomes that keep the promise.
ALLOWED = {"right result", "error of hyperplane", "error of Dask", "owner killed"}
#: Seconds for a job with faults; Dask waits up to 30 s for an answer, several times in a row.
LIMIT = 120.0
#: Seconds within which the processes of a killed owner end.
SOON = 60.0
#: Size of the small file system of runs whose disk is filled.
DISK_MB = 48


@dataclass(frozen=True)
class RunOutcome:
    """What one run ended with."""

    schedule: ChaosSchedule
    outcome: str
    detail: str = ""
    happened: tuple[str, ...] = ()
    seconds: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_allowed(self) -> bool:
        """Whether it keeps the promise."""
        return self.outcome in ALLOWED

    def __str__(self) -> str:
        faults = "\n  ".join(str(asdict(fault)) for fault in self.schedule.faults)
        return (
            f"HYPERPLANE_CHAOS_SEED={self.schedule.seed}: {self.schedule.job}\n  {faults}\n"
            f"  happened: {'; '.join(self.happened)}\n  {self.outcome}: {self.detail}"
        )


@dataclass
class EngineSetup:
    """How runs start their clusters.

    Parameters
    ----------
    plan, settings : mapping
        Arguments of ``plan_cluster``, and Dask's settings.
    host : str
        Address of the proxy.
    remote : bool
        Whether the scheduler is a separate process; otherwise its finished tasks are counted.
    scratch_space : bool
        Whether the scheduler has a folder in Dask's scratch space, in the temporary directory.
    """

    plan: Mapping[str, Any] = field(default_factory=lambda: {"engine": "local", **SMALL})
    settings: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    remote: bool = False
    scratch_space: bool = False


@contextmanager
def _small_disk(wanted: bool) -> Iterator[Path]:
    """A temporary directory, on a small file system if one is wanted and this user may mount."""
    folder = Path(tempfile.mkdtemp(prefix="ch-"))
    mounted = False
    if wanted and os.getuid() == 0:
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(folder)]
        mounted = subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def run_schedules(
    schedules: Sequence[ChaosSchedule], setup: EngineSetup | None = None, limit: float = LIMIT
) -> Iterator[RunOutcome]:
    """Run schedules in as few programs as possible, and yield their outcomes."""
    left = list(schedules)
    while left:
        # A program that loses its forkserver is of no use afterwards.
        kills = [any(f.kind == "kill forkserver" for f in each.faults) for each in left]
        count = 1 if kills[0] else [*kills, True].index(True)
        done = []
        for outcome in _run_program(left[:count], setup or EngineSetup(), limit):
            done.append(outcome.schedule.seed)
            yield outcome
        left = left[len(done) :]
        assert done, "the program ended before its first run"


def _run_program(
    schedules: Sequence[ChaosSchedule], setup: EngineSetup, limit: float
) -> Iterator[RunOutcome]:
    fills = any(fault.kind == "fill disk" for each in schedules for fault in each.faults)
    kills_forkserver = "kill forkserver" in {f.kind for each in schedules for f in each.faults}
    work = Path(tempfile.mkdtemp(prefix="chw-"))
    with _small_disk(fills) as temporary, (work / "errors").open("w+") as errors:
        options = {
            "plan": dict(setup.plan),
            "settings": dict(setup.settings),
            "work": str(work),
            "disk": str(temporary) if temporary.is_mount() else None,
            "limit": limit,
            "host": setup.host,
            "remote": setup.remote,
            "scratch_space": setup.scratch_space,
            "keeps_forkserver": setup.plan["engine"] == "local" and not kills_forkserver,
            "schedules": [each.to_dict() for each in schedules],
        }
        paths = [str(HERE), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [sys.executable, str(HERE / "chaos_program.py"), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "TMPDIR": str(temporary),
                "PYTHONPATH": os.pathsep.join(paths),
                "DASK_HYPERPLANE__ENGINES__LOCAL__PRELOAD": "[]",
            },
        )
        # The program has its own limits; this one is for a program that answers no longer.
        timer = threading.Timer(limit * len(schedules) + 300, process.kill)
        timer.start()
        try:
            yield from _read_outcomes(process, schedules, setup, work, temporary)
        finally:
            timer.cancel()
            _end_session(process)
            assert process.stdout is not None
            process.stdout.close()
            shutil.rmtree(work, ignore_errors=True)


def _read_outcomes(
    process: subprocess.Popen[str],
    schedules: Sequence[ChaosSchedule],
    setup: EngineSetup,
    work: Path,
    temporary: Path,
) -> Iterator[RunOutcome]:
    by_seed = {each.seed: each for each in schedules}
    current: ChaosSchedule | None = None
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        schedule = by_seed[said.pop("seed")]
        if said.get("begins"):
            current = schedule
            continue
        current = None
        if said["outcome"] not in ALLOWED:
            said["detail"] += "\n" + (work / "errors").read_text()[-6000:]
        yield RunOutcome(
            schedule,
            said["outcome"],
            said["detail"],
            tuple(said["happened"]),
            said.get("seconds", 0.0),
            said,
        )
    process.wait()
    if current is None and process.returncode == 1:
        raise AssertionError((work / "errors").read_text()[-6000:])
    if current is not None:
        yield _check_killed_owner(process, current, setup, work, temporary)


def find_files(temporary: Path, scratch_space: bool) -> list[Path]:
    """Return what is in a temporary directory, without the parent of Dask's scratch folders.

    Dask itself creates the parent, with two locks, and never removes it.
    """
    space = temporary / "dask-scratch-space"
    kept = {space, space / "purge.lock", space / "global.lock"} if scratch_space else set()
    return [path for path in temporary.rglob("*") if path not in kept]


def _check_killed_owner(
    process: subprocess.Popen[str],
    schedule: ChaosSchedule,
    setup: EngineSetup,
    work: Path,
    temporary: Path,
) -> RunOutcome:
    errors = (work / "errors").read_text()[-6000:]
    if process.returncode != -signal.SIGKILL:
        return RunOutcome(schedule, "other error", f"exit {process.returncode}\n{errors}")
    began = time.monotonic()
    while family := _session(process.pid):
        if time.monotonic() > began + SOON:
            commands = [" ".join(each.cmdline())[-120:] for each in family]
            return RunOutcome(schedule, "left behind", f"{commands}\n{errors}")
        time.sleep(0.05)
    ended = time.monotonic() - began
    # Files are removed by the next program that reads the records, and those in Dask's scratch
    # space by the next server of Dask.
    server = (
        "import asyncio, distributed\n"
        "async def serve():\n"
        "    async with distributed.Scheduler(host='127.0.0.1', dashboard=False): pass\n"
        "asyncio.run(serve())\n"
    )
    look = (
        (server if setup.scratch_space else "")
        + "import sys\nfrom hyperplane.clusters import records\n"
        "print([each for each in records.read_all(starting=True) if each.pid == int(sys.argv[1])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", look, str(process.pid)],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    files = [
        str(path) for path in find_files(temporary, setup.scratch_space) if path.name != "filler"
    ]
    if done.stdout != "[]\n" or files:
        return RunOutcome(schedule, "left behind", f"{done.stdout}{done.stderr}{files[:10]}")
    if schedule.job == "save":
        found = _read_saved(work)
        if found != "whole":
            return RunOutcome(schedule, "wrong result", f"saved: {found}")
    return RunOutcome(schedule, "owner killed", "", ("kill owner",), ended)


def _read_saved(work: Path) -> str:
    """Return whether a reader finds the old or the new version in full."""
    program = (
        "import sys, pathlib, chaos_jobs as jobs\n"
        "import dask; dask.config.set(scheduler='sync'); jobs.PAUSE = 0\n"
        "found = jobs.read_saved(pathlib.Path(sys.argv[1]))\n"
        "new = jobs.digest(jobs.make_frame().compute())\n"
        "print('whole' if found in (new, jobs.digest(jobs.OLD)) else found)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(work)],
        env={**os.environ, "PYTHONPATH": f"{HERE}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout or done.stderr).strip()


def _session(leader: int) -> list[psutil.Process]:
    """Return the running processes of a session, without its leader."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            is_member = process.pid != leader and os.getsid(process.pid) == leader
            if is_member and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _end_session(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    while left := _session(process.pid):
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(left, timeout=10)
