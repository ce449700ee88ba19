"""Run Dask's own tests on a cluster of this package, and print how many passed.

The tests of dask's arrays, bags and data frames ship with it. Those of distributed's client do not:
give the path of ``test_client.py`` from its repository, at the installed version.

    python scripts/compat/run_suites.py array bag dataframe
    python scripts/compat/run_suites.py slice --every 4
    python scripts/compat/run_suites.py client --client-tests test_client.py
    python scripts/compat/run_suites.py dataframe --report results   # goes on where it was stopped

A test that builds its own cluster says nothing about this package and does not run. One that fails
runs again on a plain LocalCluster: where it fails there too, it is listed and not counted.
``excluded.txt`` leaves out by name what cannot run this way at all. A test that ends the process of
the tests, or that gives no sign within its limit, has failed; the others run in a new process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import dask

HERE = Path(__file__).parent
SUITES = {
    "array": ["array/tests"],
    "bag": ["bag/tests"],
    "dataframe": [
        "dataframe/tests",
        "dataframe/io/tests",
        "dataframe/tseries/tests",
        "dataframe/dask_expr/tests",
        "dataframe/dask_expr/io/tests",
    ],
    # Small files without arrays and data frames, for a look in seconds.
    "slice": ["bag/tests/test_random.py", "bag/tests/test_text.py"],
}
#: Seconds that one test may take.
LIMIT = 120
#: Seconds without a sign from the tests' process after which it is ended.
SILENCE = 2 * LIMIT
PLAIN_TOO = "failed on a plain LocalCluster too"
SECOND_TIME = "passed only when run again"


class Run(NamedTuple):
    """What to run: tests below a folder, and on which cluster."""

    top: Path
    tests: list[str]
    every: int
    cluster: str = "hyperplane"
    #: Names of tests; none for all.
    only: Sequence[str] = ()


def read(report: Path) -> dict[str, str]:
    """Outcomes by tests' names, of a report that may lack its last line's end."""
    found = {}
    if report.exists():
        for line in report.read_text(encoding="utf-8").splitlines():
            try:
                name, outcome = json.loads(line)
            except ValueError:  # the process was killed while it wrote the line
                continue
            found[name] = outcome
    return found


def run(asked: Run, report: Path) -> dict[str, str]:
    """Run tests, each outcome being added to a report; outcomes by names.

    Tests that the report has already do not run again.
    """
    while True:
        before = len(read(report))
        ended, printed = run_once(asked, report)
        found = read(report)
        with report.open("a", encoding="utf-8") as lines:
            for name in [name for name, outcome in found.items() if outcome == "begun"]:
                print(f"{name} ended its process:\n{printed[-2000:]}", flush=True)
                lines.write("\n" + json.dumps([name, "failed"]) + "\n")
        if ended:
            if "failed" in read(report).values() and asked.cluster != "plain":
                print(printed)
            return read(report)
        if len(found) == before:
            sys.exit(f"the tests did not come to an end:\n{printed[-4000:]}")


def run_once(asked: Run, report: Path) -> tuple[bool, str]:
    """Run tests in a process of their own; whether it came to its end, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "names.txt"
        names.write_text("\n".join(asked.only), encoding="utf-8")
        environment = {
            **os.environ,
            "COMPAT_CLUSTER": asked.cluster,
            "COMPAT_EVERY": str(asked.every),
            "COMPAT_ONLY": str(names),
            "COMPAT_REPORT": str(report),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        plugins = ["-p", "on_cluster", "-p", "no:randomly", "-p", "no:cacheprovider"]
        output = ["-q", "--tb=short", "--show-capture=no", "--disable-warnings"]
        # The environment may be a folder of this project, whose conftest.py is not for them.
        places = ["-c", os.devnull, f"--rootdir={asked.top}", f"--confcutdir={asked.top}"]
        places += [f"--basetemp={Path(folder) / 'tmp'}", f"--timeout={LIMIT}"]
        paths = [str(asked.top / test) for test in asked.tests]
        printed = Path(folder) / "printed.txt"
        with printed.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *plugins, *output, *places, *paths],
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )
            spoke = _wait(process, report)
        # 0 and 1: all tests have run; 5: none was left to run.
        ended = spoke and process.returncode in (0, 1, 5)
        return ended, printed.read_text(encoding="utf-8", errors="replace")


def _wait(process: subprocess.Popen[bytes], report: Path) -> bool:
    """Wait for the tests' process; end it, and give False, when it is silent for too long."""
    last, size = time.monotonic(), -1
    try:
        while process.poll() is None:
            now = report.stat().st_size if report.exists() else 0
            if now != size:
                last, size = time.monotonic(), now
            if time.monotonic() - last > SILENCE:
                return False
            time.sleep(0.2)
        return True
    finally:
        if process.poll() is None:  # silent, or this program is interrupted
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def compare(asked: Run, report: Path) -> dict[str, str]:
    """Outcomes on this package's cluster; failures that a plain cluster has too are marked."""
    found = run(asked, report)
    for cluster, outcome, name in (
        ("plain", "failed", PLAIN_TOO),
        (asked.cluster, "passed", SECOND_TIME),
    ):
        if failed := [test for test, each in found.items() if each == "failed"]:
            files = sorted({test.partition("::")[0] for test in failed})
            again = asked._replace(cluster=cluster, tests=files, only=failed)
            other = run(again, report.with_suffix(f".{cluster}.jsonl"))
            found.update(dict.fromkeys((t for t in failed if other.get(t) == outcome), name))
    return found


def summary(suite: str, found: dict[str, str]) -> str:
    """How many tests of a suite had which outcome, and the names of those that failed."""
    outcomes = Counter(outcome.partition(":")[0] for outcome in found.values())
    ran = sum(
        outcomes[name] for name in ("passed", "failed", "expected to fail", PLAIN_TOO, SECOND_TIME)
    )
    text = f"{suite}: {ran} ran, {outcomes['passed']} passed, {outcomes['failed']} failed"
    for name in (PLAIN_TOO, SECOND_TIME, "expected to fail", "skipped", "own cluster", "excluded"):
        text += f", {outcomes[name]} {name}" if outcomes[name] else ""
    reasons = Counter(
        outcome.partition(": ")[2] for outcome in found.values() if outcome.startswith("excluded")
    )
    lines = [f"    {number} excluded: {reason}" for reason, number in reasons.items()]
    for outcome in ("failed", SECOND_TIME, PLAIN_TOO):
        lines += [f"    {outcome}: {name}" for name, each in found.items() if each == outcome]
    return "\n".join([text, *lines])


def main() -> int:
    """Run what the command line asks for; the number of suites with a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="+", help=f"{', '.join(SUITES)}, client, or files of Dask")
    parser.add_argument("--every", type=int, default=1, help="run each n-th test only")
    parser.add_argument("--client-tests", type=Path, help="distributed's test_client.py")
    parser.add_argument(
        "--report", type=Path, help="folder that keeps the outcomes; what is there is not run again"
    )
    asked = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        reports = (asked.report or Path(folder)).resolve()
        reports.mkdir(parents=True, exist_ok=True)
        for suite in asked.suites:
            top, tests = Path(dask.__file__).parent, SUITES.get(suite, [suite])
            if suite == "client":
                if asked.client_tests is None or not asked.client_tests.is_file():
                    print("client: not run; distributed ships no tests, see --client-tests")
                    continue
                top, tests = asked.client_tests.resolve().parent, [asked.client_tests.name]
            report = reports / f"{suite.replace('/', '-')}.jsonl"
            found = compare(Run(top, tests, asked.every), report)
            different += "failed" in found.values()
            print(summary(suite, found), flush=True)
    return different


if __name__ == "__main__":
    sys.exit(main())
