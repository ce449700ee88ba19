"""Run Dask's own tests on a cluster of this package, and print how many passed.

The tests of dask's arrays, bags and data frames ship with it. Those of distributed's client do not:
give the path of ``test_client.py`` from its repository, at the installed version.

    python scripts/compat/run_suites.py array bag dataframe
    python scripts/compat/run_suites.py slice --every 4
    python scripts/compat/run_suites.py client --client-tests test_client.py
    python scripts/compat/run_suites.py dataframe --report results   # resumes

A test that creates its own cluster does not run. A test that fails runs again on a plain
LocalCluster; if it fails there too, it is listed and not counted. ``excluded.txt`` lists tests that
cannot run this way. A test that ends the test process, or that exceeds its limit, has failed; the
others run in a new process.
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
    # Small files without arrays and data frames, for a check in seconds.
    "slice": ["bag/tests/test_random.py", "bag/tests/test_text.py"],
}
#: Limit for one test, in seconds.
LIMIT = 120
#: The test process is ended after this number of seconds without output.
SILENCE = 2 * LIMIT
PLAIN_TOO = "failed on a plain LocalCluster too"
SECOND_TIME = "passed only when run again"


class Selection(NamedTuple):
    """Selection of tests below a folder, and the cluster to run them on."""

    top: Path
    tests: list[str]
    every: int
    cluster: str = "hyperplane"
    #: Names of tests; empty for all.
    only: Sequence[str] = ()


def read_report(report: Path) -> dict[str, str]:
    """Return the outcomes in a report by test name; its last line may be incomplete."""
    outcomes = {}
    if report.exists():
        for line in report.read_text(encoding="utf-8").splitlines():
            try:
                name, outcome = json.loads(line)
            except ValueError:  # the process was killed while it wrote the line
                continue
            outcomes[name] = outcome
    return outcomes


def run_all(selection: Selection, report: Path) -> dict[str, str]:
    """Run tests and append each outcome to a report; return the outcomes by name.

    Tests that the report already contains do not run again.
    """
    while True:
        before = len(read_report(report))
        ended, printed = run_once(selection, report)
        outcomes = read_report(report)
        with report.open("a", encoding="utf-8") as lines:
            for name in [name for name, outcome in outcomes.items() if outcome == "begun"]:
                print(f"{name} ended its process:\n{printed[-2000:]}", flush=True)
                lines.write("\n" + json.dumps([name, "failed"]) + "\n")
        if ended:
            if "failed" in read_report(report).values() and selection.cluster != "plain":
                print(printed)
            return read_report(report)
        if len(outcomes) == before:
            sys.exit(f"the tests did not finish:\n{printed[-4000:]}")


def run_once(selection: Selection, report: Path) -> tuple[bool, str]:
    """Run tests in a new process; return whether it finished, and its output."""
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "names.txt"
        names.write_text("\n".join(selection.only), encoding="utf-8")
        environment = {
            **os.environ,
            "COMPAT_CLUSTER": selection.cluster,
            "COMPAT_EVERY": str(selection.every),
            "COMPAT_ONLY": str(names),
            "COMPAT_REPORT": str(report),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        plugins = ["-p", "on_cluster", "-p", "no:randomly", "-p", "no:cacheprovider"]
        output = ["-q", "--tb=short", "--show-capture=no", "--disable-warnings"]
        # The environment may be in a folder of this project, whose conftest.py must not apply.
        places = ["-c", os.devnull, f"--rootdir={selection.top}", f"--confcutdir={selection.top}"]
        places += [f"--basetemp={Path(folder) / 'tmp'}", f"--timeout={LIMIT}"]
        paths = [str(selection.top / test) for test in selection.tests]
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
            active = _wait(process, report)
        # Exit codes 0 and 1: all tests have run; 5: none was selected.
        ended = active and process.returncode in (0, 1, 5)
        return ended, printed.read_text(encoding="utf-8", errors="replace")


def _wait(process: subprocess.Popen[bytes], report: Path) -> bool:
    """Wait for the test process; end it and return False if the report does not grow."""
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
        if process.poll() is None:  # no output, or this program was interrupted
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def compare(selection: Selection, report: Path) -> dict[str, str]:
    """Return the outcomes on this package's cluster; mark failures that plain Dask also has."""
    outcomes = run_all(selection, report)
    for cluster, outcome, name in (
        ("plain", "failed", PLAIN_TOO),
        (selection.cluster, "passed", SECOND_TIME),
    ):
        if failed := [test for test, each in outcomes.items() if each == "failed"]:
            files = sorted({test.partition("::")[0] for test in failed})
            again = selection._replace(cluster=cluster, tests=files, only=failed)
            other = run_all(again, report.with_suffix(f".{cluster}.jsonl"))
            outcomes.update(dict.fromkeys((t for t in failed if other.get(t) == outcome), name))
    return outcomes


def summarize(suite: str, outcomes: dict[str, str]) -> str:
    """Return the number of tests by outcome, and the names of failed tests."""
    counts = Counter(outcome.partition(":")[0] for outcome in outcomes.values())
    ran = sum(
        counts[name] for name in ("passed", "failed", "expected to fail", PLAIN_TOO, SECOND_TIME)
    )
    text = f"{suite}: {ran} ran, {counts['passed']} passed, {counts['failed']} failed"
    for name in (PLAIN_TOO, SECOND_TIME, "expected to fail", "skipped", "own cluster", "excluded"):
        text += f", {counts[name]} {name}" if counts[name] else ""
    reasons = Counter(
        outcome.partition(": ")[2]
        for outcome in outcomes.values()
        if outcome.startswith("excluded")
    )
    lines = [f"    {number} excluded: {reason}" for reason, number in reasons.items()]
    for outcome in ("failed", SECOND_TIME, PLAIN_TOO):
        lines += [f"    {outcome}: {name}" for name, each in outcomes.items() if each == outcome]
    return "\n".join([text, *lines])


def main() -> int:
    """Run the suites of the command line; return the number of suites with failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="+", help=f"{', '.join(SUITES)}, client, or files of Dask")
    parser.add_argument("--every", type=int, default=1, help="run only each n-th test")
    parser.add_argument("--client-tests", type=Path, help="distributed's test_client.py")
    parser.add_argument(
        "--report",
        type=Path,
        help="folder for the outcomes; tests with an outcome do not run again",
    )
    arguments = parser.parse_args()
    failed_suites = 0
    with tempfile.TemporaryDirectory() as folder:
        reports = (arguments.report or Path(folder)).resolve()
        reports.mkdir(parents=True, exist_ok=True)
        for suite in arguments.suites:
            top, tests = Path(dask.__file__).parent, SUITES.get(suite, [suite])
            if suite == "client":
                if arguments.client_tests is None or not arguments.client_tests.is_file():
                    print("client: not run; distributed ships no tests, pass --client-tests")
                    continue
                top, tests = arguments.client_tests.resolve().parent, [arguments.client_tests.name]
            report = reports / f"{suite.replace('/', '-')}.jsonl"
            outcomes = compare(Selection(top, tests, arguments.every), report)
            failed_suites += "failed" in outcomes.values()
            print(summarize(suite, outcomes), flush=True)
    return failed_suites


if __name__ == "__main__":
    sys.exit(main())
