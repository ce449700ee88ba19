#!/usr/bin/env python3
"""Run the tests of engines on real services, several test files in parallel.

    scripts/engines/run_tests.py ssh slurm gateway
    scripts/engines/run_tests.py kubernetes --only 'main_job or deleted'

Such tests mostly wait: for a process to start, or for Slurm's next scheduling cycle. Each test file
runs in a pytest process with its own services, temporary directory and job home; the files of
kubernetes share one process, because a machine runs only one Kubernetes. At the end the output of
each process that failed is printed, then the time of each engine and the slowest tests. The exit
status is 0 when every process has succeeded. Ctrl-C or SIGTERM ends all of them, with their
services.
"""

# ruff: noqa: T201 - it prints its results

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "tests/platforms": "test_{}*.py",
    "tests/clusters": "test_{}*.py",
    "tests/chaos": "test_chaos_{}*.py",
    "tests/jobs/runners": "test_runners_{}*.py",
    "tests/ui": "test_ui_{}*.py",
    "tests/lab": "test_lab_{}*.py",
}
#: Engines whose service can run only once on a machine.
ONE_SERVICE = {"kubernetes"}
#: Number of parallel processes; half of them wait.
MAX_PROCESSES = 2 * (os.cpu_count() or 1) + 1
#: Files that take longest; they start first, so that none runs alone at the end.
LONGEST = (
    *("test_slurm_life", "test_gateway_life", "test_ssh_life", "test_gateway_real"),
    *("test_runners_slurm_real", "test_ssh_real", "test_slurm_real", "test_slurm_walltime"),
)
SLOWEST = 20
#: Seconds that processes may take to end their services after an interruption.
GRACE = 90.0
NO_TESTS = 5
PR_SET_PDEATHSIG = 1


@dataclass
class TestGroup:
    """Test files that run in one pytest process.

    Parameters
    ----------
    engine : str
        Their engine.
    files : list of str
        Paths relative to the root of the repository.
    """

    engine: str
    files: list[str]
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    seconds: float = 0.0
    tests: list[tuple[float, str]] = field(default_factory=list)
    summary: str = ""
    _files: Path = Path()

    @property
    def name(self) -> str:
        """Name of the first file without the common prefix and suffix."""
        return Path(self.files[0]).stem.removeprefix("test_")

    def start(self, folder: Path, number: int, only: str) -> None:
        """Start the process; the names of its files in the folder are a unique number."""
        self._files = folder / str(number)
        self._files.mkdir()  # short, because the path of a socket may have a hundred characters
        words = [sys.executable, "-m", "pytest", "-m", "engine", "-p", "no:cacheprovider"]
        words += [f"--junit-xml={self._file('xml')}", "-o", "junit_family=legacy"]
        words += ["-k", only, *self.files] if only else self.files
        self.began = time.monotonic()
        with self._file("txt").open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603 - pytest on files of this repository
                words,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self._files)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Only this process forwards Ctrl-C to it, once.
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def finish(self) -> None:
        """Read the report of the ended process."""
        self.seconds = time.monotonic() - self.began
        if self._file("xml").exists():
            cases = ElementTree.parse(self._file("xml")).getroot()  # noqa: S314 - of our pytest
            for case in cases.iter("testcase"):
                name = f"{Path(case.get('file', '')).stem}::{case.get('name')}"
                self.tests.append((float(case.get("time", 0)), name))
        summaries = re.findall(r"^=+ (.* in [\d.]+s.*?) =+$", self.output, re.MULTILINE)
        self.summary = summaries[-1] if summaries else f"exit status {self.status}"

    def heading(self) -> str:
        """Return the heading of the output."""
        return f"\n{f' {self.name} ':=^100}"

    @property
    def output(self) -> str:
        """Everything that the process has printed."""
        return self._file("txt").read_text(errors="replace")

    @property
    def status(self) -> int:
        """Exit status of the ended process; 0 if no test was selected."""
        code = None if self.process is None else self.process.returncode
        return 1 if code is None else 0 if code == NO_TESTS else code

    def _file(self, kind: str) -> Path:
        return self._files.with_suffix(f".{kind}")


class Interruption(BaseException):
    """Raised when the user or the system ends the run."""


def main() -> int:
    """Run the tests of the engines that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engines", nargs="+", metavar="ENGINE")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="as for pytest -k")
    parser.add_argument(
        "--only-of",
        action="append",
        nargs=2,
        default=[],
        metavar=("ENGINE", "EXPRESSION"),
        help="as --only, for the tests of one engine",
    )
    parser.add_argument("--at-once", type=int, default=MAX_PROCESSES)
    arguments = parser.parse_args()
    groups = [group for engine in arguments.engines for group in group_test_files(engine)]
    if not groups:
        parser.error(f"no tests of {', '.join(arguments.engines)}")
    groups.sort(key=lambda group: rank(group.files))
    only = {**dict.fromkeys(arguments.engines, arguments.only), **dict(arguments.only_of)}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="hpe-", dir="/tmp"))
    began = time.monotonic()
    try:
        run(groups, folder, only, arguments.at_once)
        return report(groups, time.monotonic() - began)
    except Interruption:
        print("interrupted; all processes and services are ended", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def group_test_files(engine: str) -> list[TestGroup]:
    """Return the groups of an engine's test files that can run in parallel."""
    files = [
        str(file.relative_to(ROOT))
        for folder, pattern in FOLDERS.items()
        for file in sorted((ROOT / folder).glob(pattern.format(engine)))
        if "pytest.mark.engine" in file.read_text(encoding="utf-8")
    ]
    if engine in ONE_SERVICE and files:
        return [TestGroup(engine, files)]
    return [TestGroup(engine, [file]) for file in files]


def rank(files: list[str]) -> int:
    """Return the position of a process in the order of starts."""
    ranks = [LONGEST.index(stem) for stem in map(_stem, files) if stem in LONGEST]
    return min(ranks, default=-1 if len(files) > 1 else len(LONGEST))


def run(groups: list[TestGroup], folder: Path, only: dict[str, str], at_once: int) -> None:
    """Run all groups in parallel; end all of them on an interruption."""
    waiting, running = list(groups), list[TestGroup]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                group = waiting.pop(0)
                group.start(folder, len(groups) - len(waiting), only[group.engine])
                running.append(group)
            for group in list(running):
                if group.process is None or group.process.poll() is None:
                    continue
                running.remove(group)
                group.finish()
                print(f"{group.name}: {group.summary}", flush=True)
            time.sleep(0.2)
    finally:
        end(running)
        for group in running:
            print(group.heading(), group.output, sep="\n", flush=True)


def end(running: list[TestGroup]) -> None:
    """Interrupt processes, so that they end their services; kill those that do not end."""
    processes = [group.process for group in running if group.process is not None]
    for process in processes:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def report(groups: list[TestGroup], seconds: float) -> int:
    """Print failures, times of engines and the slowest tests; return the exit status."""
    failed = [group for group in groups if group.status]
    for group in failed:
        print(group.heading(), group.output, sep="\n")
    print("\nslowest tests")
    tests = sorted((test for group in groups for test in group.tests), reverse=True)
    for duration, name in tests[:SLOWEST]:
        print(f"{duration:8.1f} s  {name}")
    print("\ntime and number of tests of each file and each engine")
    for engine in dict.fromkeys(group.engine for group in groups):
        own = [group for group in groups if group.engine == engine]
        for group in own:
            print(f"{group.seconds:8.0f} s {len(group.tests):4}  {group.name}")
        end_time = max(group.began + group.seconds for group in own)
        duration = end_time - min(group.began for group in own)
        print(f"{duration:8.0f} s {sum(len(group.tests) for group in own):4}  {engine}")
    print(f"{seconds:8.0f} s {len(tests):4}  all")
    if failed:
        print(f"failed: {', '.join(group.name for group in failed)}")
        return 1
    if not tests:
        print("no test was selected")
        return NO_TESTS
    return 0


def _stem(file: str) -> str:
    return Path(file).stem


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise Interruption


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
