#!/usr/bin/env python3
"""Runs the tests of engines on real services, several test files beside each other.

    scripts/engines/run_tests.py ssh slurm gateway
    scripts/engines/run_tests.py kubernetes --only 'main_job or deleted'

Most of the time such a test waits: for a process to start, for Slurm's next look at its queue. Each
test file runs in a pytest process with its own services, temporary directory and job home; the
files of kubernetes share one process, because there is one Kubernetes on a machine. At the end the
output of each process that failed is printed, then the time of each engine and the slowest tests.
The exit status is 0 when every process has succeeded. Ctrl-C or SIGTERM ends all of them, with
their services.
"""

# ruff: noqa: T201 - it prints what it finds

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
    "tests/engines": "test_{}*.py",
    "tests/jobs/runners": "test_runners_{}*.py",
}
#: Engines whose service exists once on a machine.
ONE_SERVICE = {"kubernetes"}
#: Processes at a time for each core: two of three wait.
FOR_EACH_CORE = 3
SLOWEST = 20
#: Seconds that processes get to end their services after an interruption.
GRACE = 90.0
NO_TESTS = 5
PR_SET_PDEATHSIG = 1


@dataclass
class Part:
    """Test files that run in one pytest process.

    Parameters
    ----------
    engine : str
        Their engine.
    files : list of str
        Relative to the root of the repository.
    """

    engine: str
    files: list[str]
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    seconds: float = 0.0
    tests: list[tuple[float, str]] = field(default_factory=list)
    summary: str = ""

    @property
    def name(self) -> str:
        """Name of the first file without what all names have."""
        return Path(self.files[0]).stem.removeprefix("test_")

    def start(self, folder: Path, only: str) -> None:
        """Start the process; its output and report go to a folder."""
        own = folder / self.name
        (own / "t").mkdir(parents=True)
        words = [sys.executable, "-m", "pytest", "-m", "engine", "-o", "junit_family=legacy"]
        words += [f"--junit-xml={own / 'report.xml'}", f"--basetemp={own / 'base'}"]
        words += ["-p", "no:cacheprovider", *(["-k", only] if only else []), *self.files]
        self.began = time.monotonic()
        with (own / "output").open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603 - pytest on files of this repository
                words,
                cwd=ROOT,
                # Short: the path of a socket may have a hundred characters.
                env={**os.environ, "TMPDIR": str(own / "t")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches it through this process only, once.
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def finish(self, folder: Path) -> None:
        """Read the report of the process, which has ended."""
        self.seconds = time.monotonic() - self.began
        report, output = folder / self.name / "report.xml", self.output(folder)
        if report.exists():
            for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 - ours
                name = f"{Path(case.get('file', '')).stem}::{case.get('name')}"
                self.tests.append((float(case.get("time", 0)), name))
        lines = [line for line in output.splitlines() if re.match(r"=+ .* in [\d.]+s", line)]
        self.summary = lines[-1].strip("= ") if lines else f"exit status {self.status}"

    def output(self, folder: Path) -> str:
        """All that the process has printed."""
        return (folder / self.name / "output").read_text(errors="replace")

    @property
    def status(self) -> int:
        """Exit status of the process, which has ended; 0 where no test was selected."""
        code = None if self.process is None else self.process.returncode
        return 1 if code is None else 0 if code == NO_TESTS else code


class Interrupted(BaseException):
    """The user or the system ends the run."""


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
    parser.add_argument("--at-once", type=int, default=FOR_EACH_CORE * (os.cpu_count() or 1))
    given = parser.parse_args()
    parts = [part for engine in given.engines for part in parts_of(engine)]
    if not parts:
        parser.error(f"no tests of {', '.join(given.engines)}")
    only = {**dict.fromkeys(given.engines, given.only), **dict(given.only_of)}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="hpe-", dir="/tmp"))
    began = time.monotonic()
    try:
        run(parts, folder, only, given.at_once)
        return report(parts, folder, time.monotonic() - began)
    except Interrupted:
        print("interrupted; all processes and services are ended", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parts_of(engine: str) -> list[Part]:
    """What can run beside each other of an engine's tests."""
    files = [
        str(file.relative_to(ROOT))
        for folder, pattern in FOLDERS.items()
        for file in sorted((ROOT / folder).glob(pattern.format(engine)))
        if "pytest.mark.engine" in file.read_text(encoding="utf-8")
    ]
    if engine in ONE_SERVICE and files:
        return [Part(engine, files)]
    return [Part(engine, [file]) for file in files]


def run(parts: list[Part], folder: Path, only: dict[str, str], at_once: int) -> None:
    """Run all parts, so many at a time; end all of them on an interruption."""
    waiting, running = list(parts), list[Part]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                part = waiting.pop(0)
                part.start(folder, only[part.engine])
                running.append(part)
            for part in [one for one in running if one.process and one.process.poll() is not None]:
                running.remove(part)
                part.finish(folder)
                print(f"{part.name}: {part.summary}", flush=True)
            time.sleep(0.2)
    finally:
        end(running)


def end(running: list[Part]) -> None:
    """End processes as Ctrl-C does, so that they end their services; kill those that stay."""
    processes = [part.process for part in running if part.process is not None]
    for process in processes:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def report(parts: list[Part], folder: Path, seconds: float) -> int:
    """Print what failed, the time of each engine and the slowest tests; the exit status."""
    failed = [part for part in parts if part.status]
    for part in failed:
        print(f"\n{f' {part.name} ':=^100}\n{part.output(folder)}")
    print("\nslowest tests")
    tests = sorted((test for part in parts for test in part.tests), reverse=True)
    for one, name in tests[:SLOWEST]:
        print(f"{one:8.1f} s  {name}")
    print("\ntime and number of tests of each file and each engine")
    for engine in dict.fromkeys(part.engine for part in parts):
        own = [part for part in parts if part.engine == engine]
        for part in own:
            print(f"{part.seconds:8.0f} s {len(part.tests):4}  {part.name}")
        ends = max(part.began + part.seconds for part in own) - min(part.began for part in own)
        print(f"{ends:8.0f} s {sum(len(part.tests) for part in own):4}  {engine}")
    print(f"{seconds:8.0f} s {len(tests):4}  all")
    if failed:
        print(f"failed: {', '.join(part.name for part in failed)}")
        return 1
    if not tests:
        print("no test was selected")
        return NO_TESTS
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # what follows ends by itself
    raise Interrupted


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
