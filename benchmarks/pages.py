"""Time, bytes and first paint of pages of ``hyperplane ui`` with many runs, in Chromium.

    python -m benchmarks.pages [--runs 1000] [--steps 100] [--rounds 7]

The store and the records are in a temporary folder, and are written by the code that jobs use. For
each page: the size of the answer, the median time until a client has read it, and the time from the
start of the navigation to the first contentful paint, of a browser that has opened no page before
and the median of the next ones. It needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import dask.config

from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import DONE, FAILED, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store

# The helpers of the tests of the page.
_TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path += [str(_TESTS / name) for name in ("", "ui")]

from browser import Browser  # noqa: E402
from ui_server import UiServer  # noqa: E402

#: Seconds between two runs, and of a run.
_DAY, _RUN = 86_400.0, 600.0
#: The time of the browser at which the first text or picture was drawn, in milliseconds.
_PAINT = """new Promise(resolve => {
    const find = () => performance.getEntriesByName('first-contentful-paint')[0];
    const wait = () => find() ? resolve(find().startTime) : setTimeout(wait, 5);
    wait();
})"""


def fill_store(folder: Path, runs: int, steps: int) -> Job:
    """Store runs of four pipelines, and one of many steps, which is returned."""
    store, now = open_store(), time.time()
    names = ("nightly", "orders", "weather", "prices")
    jobs = [new_job(Pipeline.from_steps(name, _make_steps(3), root=str(folder))) for name in names]
    for number in range(runs - 1):
        at = now - (runs - number) * _DAY / len(names)
        job = jobs[number % len(names)]
        store.add(
            replace(
                job, id=f"{number:08x}-run", status=FAILED if number % 9 == 0 else DONE,
                reason="step fit: exit code 1" if number % 9 == 0 else "", folder=str(folder),
                submitted=at, started=at + 1, ended=at + _RUN + number % 60,
            )
        )  # fmt: skip
    wide = new_job(Pipeline.from_steps("wide", _make_steps(steps), root=str(folder)))
    wide = replace(
        wide, status=DONE, folder=str(folder), submitted=now - _RUN, started=now - _RUN, ended=now
    )
    store.add(wide)
    for number, step in enumerate(wide.steps):
        log = folder / f"{step.name}.log"
        log.write_text(f"line {number}\n" * 40)
        began = wide.started + number * _RUN / steps
        attempt = Attempt(
            wide.id, step.name, -1, 1, DONE, began, began + _RUN / steps, log=log.name
        )
        store.save_attempt(attempt)
    return wide


def _make_steps(count: int) -> list[Step]:
    """Return steps, of which each waits for the three before."""
    names = [f"step-{number}" for number in range(count)]
    return [
        Step(
            name=name, kind="command", argv=("true",), depends_on=tuple(names[max(0, at - 3) : at])
        )
        for at, name in enumerate(names)
    ]


def measure(paths: Sequence[str], rounds: int, profile: Path) -> None:
    """Print the figures of each page."""
    server = UiServer()
    try:
        server.login()
        print(f"{'page':30} {'kB':>7} {'answer':>9} {'first paint':>12} {'next paints':>12}")
        for number, path in enumerate(paths):
            seconds, size = [], 0
            for _ in range(rounds):
                began = time.perf_counter()
                answer = server.request(path)
                seconds.append(time.perf_counter() - began)
                assert answer.code == 200, (path, answer.code)
                size = len(answer.text.encode())
            browser = Browser(profile / str(number))
            try:
                paints = []
                for _ in range(rounds):
                    # The first page of a browser: it continues without the token.
                    first = f"{path}{'&' if '?' in path else '?'}token={server.token}"
                    browser.open(server.origin + (path if paints else first))
                    paints.append(browser.evaluate(_PAINT) / 1000)
            finally:
                browser.close()
            print(
                f"{path:30.30} {size / 1000:7.1f} {median(seconds) * 1000:6.1f} ms "
                f"{paints[0] * 1000:9.0f} ms {median(paints[1:]) * 1000:9.0f} ms"
            )
    finally:
        server.end()


def main() -> None:
    """Fill a store, and measure the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pages-") as name:
        folder = Path(name)
        os.environ |= {
            "XDG_STATE_HOME": str(folder / "state"),
            "DASK_HYPERPLANE__JOBS__HOME": str(folder / "jobs"),
        }
        with dask.config.set({"hyperplane.jobs.home": str(folder / "jobs")}):
            began = time.perf_counter()
            wide = fill_store(folder, given.runs, given.steps)
            print(f"{given.runs:,} runs stored in {time.perf_counter() - began:.1f} s")
            paths = ["/", "/jobs", "/jobs?pipeline=nightly", "/jobs?page=10", f"/jobs/{wide.id}",
                     f"/jobs/{wide.id}/report", "/schedules", "/pools"]  # fmt: skip
            measure(paths, given.rounds, folder)
            open_store().close()


if __name__ == "__main__":
    main()
