"""Run Dask's own tests on a cluster of this package, and print how many passed.

The tests of dask's arrays, bags and data frames ship with it. Those of distributed's client do not:
give the path of ``test_client.py`` from its repository, at the installed version.

    python scripts/compat/run_suites.py array bag dataframe
    python scripts/compat/run_suites.py slice --every 4
    python scripts/compat/run_suites.py client --client-tests test_client.py

A test that builds its own cluster says nothing about this package and does not run. One that fails
runs again on a plain LocalCluster: where it fails there too, it is listed and not counted.
``excluded.txt`` leaves out by name what cannot run this way at all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import dask

HERE = Path(__file__).parent
SUITES = {
    "array": ["array/tests"],
    "bag": ["bag/tests"],
    "dataframe": ["dataframe/tests", "dataframe/dask_expr/tests"],
    "slice": [  # small files of each, for a look in seconds
        "array/tests/test_reshape.py",
        "bag/tests/test_random.py",
        "bag/tests/test_text.py",
        "dataframe/tests/test_accessors.py",
        "dataframe/tests/test_hashing.py",
        "dataframe/tests/test_indexing.py",
    ],
}
#: Seconds that one test may take.
LIMIT = 120
PLAIN_TOO = "failed on a plain LocalCluster too"


def run(top: Path, tests: list[str], cluster: str, every: int = 1) -> tuple[dict[str, str], str]:
    """Run tests below a folder in a separate process; outcomes by names, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = {
            **os.environ,
            "COMPAT_CLUSTER": cluster,
            "COMPAT_EVERY": str(every),
            "COMPAT_REPORT": str(report),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        plugins = ["-p", "on_cluster", "-p", "no:randomly", "-p", "no:cacheprovider"]
        output = ["-q", "--tb=short", "--show-capture=no", "--disable-warnings"]
        # The environment may be a folder of this project, whose conftest.py is not for them.
        paths = [f"--timeout={LIMIT}", *(str(top / test) for test in tests)]
        places = ["-c", os.devnull, f"--rootdir={top}", f"--confcutdir={top}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, *output, *places, *paths],
            env=environment,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
        if not report.exists():
            sys.exit(f"the tests did not come to an end:\n{done.stdout[-4000:]}")
        return json.loads(report.read_text(encoding="utf-8")), done.stdout


def compare(top: Path, tests: list[str], every: int) -> tuple[dict[str, str], str]:
    """Outcomes on this package's cluster; failures that a plain cluster has too are marked."""
    found, printed = run(top, tests, "hyperplane", every)
    failed = [name for name, outcome in found.items() if outcome == "failed"]
    if failed:
        plain, _ = run(top, failed, "plain")
        found.update(dict.fromkeys((n for n in failed if plain.get(n) == "failed"), PLAIN_TOO))
    return found, printed


def summary(suite: str, found: dict[str, str]) -> str:
    """How many tests of a suite had which outcome, and the names of those that failed."""
    outcomes = Counter(outcome.partition(":")[0] for outcome in found.values())
    ran = sum(outcomes[name] for name in ("passed", "failed", "expected to fail", PLAIN_TOO))
    text = f"{suite}: {ran} ran, {outcomes['passed']} passed, {outcomes['failed']} failed"
    for name in (PLAIN_TOO, "expected to fail", "skipped", "own cluster", "excluded"):
        text += f", {outcomes[name]} {name}" if outcomes[name] else ""
    reasons = Counter(
        outcome.partition(": ")[2] for outcome in found.values() if outcome.startswith("excluded")
    )
    lines = [f"    {number} excluded: {reason}" for reason, number in reasons.items()]
    for outcome in ("failed", PLAIN_TOO):
        lines += [f"    {outcome}: {name}" for name, each in found.items() if each == outcome]
    return "\n".join([text, *lines])


def main() -> int:
    """Run what the command line asks for; the number of suites with a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="+", choices=[*SUITES, "client"])
    parser.add_argument("--every", type=int, default=1, help="run each n-th test only")
    parser.add_argument("--client-tests", type=Path, help="distributed's test_client.py")
    asked = parser.parse_args()
    different = 0
    for suite in asked.suites:
        if suite == "client":
            if asked.client_tests is None or not asked.client_tests.is_file():
                print("client: not run; distributed ships no tests, see --client-tests")
                continue
            top, tests = asked.client_tests.resolve().parent, [asked.client_tests.name]
        else:
            top, tests = Path(dask.__file__).parent, SUITES[suite]
        found, printed = compare(top, tests, asked.every)
        if "failed" in found.values():
            different += 1
            print(printed)
        print(summary(suite, found), flush=True)
    return different


if __name__ == "__main__":
    sys.exit(main())
