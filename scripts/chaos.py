#!/usr/bin/env python3
"""Run jobs with random faults on local clusters, and print a table of how they ended.

    python -m scripts.chaos 0 200                  seeds 0 to 199
    python -m scripts.chaos 0 200 --results FILE   also append each outcome to FILE, as JSON
    python -m scripts.chaos --results FILE         only the table of the outcomes in FILE

The seed of a run decides its job, its faults and their moments; ``tests/chaos`` has the parts. Runs
that break the promise are printed in full; the exit status is then 1.
"""

# ruff: noqa: T201 - it prints its results

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "chaos"))

import chaos_jobs
from chaos_runs import ALLOWED, run_schedules
from chaos_schedule import FAULTS, draw_schedule


def main() -> None:
    """Run the seeds of the command line, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("end", type=int, nargs="?", default=0)
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    lines: list[dict[str, Any]] = []
    schedules = [draw_schedule(n, list(chaos_jobs.JOBS)) for n in range(asked.first, asked.end)]
    for outcome in run_schedules(schedules):
        line = {
            "seed": outcome.schedule.seed,
            "job": outcome.schedule.job,
            "faults": [fault.kind for fault in outcome.schedule.faults],
            "outcome": outcome.outcome,
            "happened": outcome.happened,
            "seconds": outcome.figures.get("took"),
            "calm": outcome.figures.get("calm"),
            "detail": outcome.detail[:1500],
        }
        lines.append(line)
        print(line["seed"], line["job"], outcome.schedule.kinds, "=>", line["outcome"], flush=True)
        if not outcome.is_allowed:
            print(outcome, flush=True)
        if asked.results:
            with asked.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
    if not schedules and asked.results:
        lines = [json.loads(line) for line in asked.results.read_text().splitlines()]
    print(make_table(lines))
    sys.exit(any(line["outcome"] not in ALLOWED for line in lines))


def make_table(lines: list[dict[str, Any]]) -> str:
    """Return a Markdown table with a row for each kind of fault.

    A run with two faults counts in the rows of both.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        for kind in dict.fromkeys(line["faults"]):
            rows[kind].append(line)
    table = [
        "| fault | runs | right result | error of Dask | error of hyperplane | ended, nothing left "
        "| promise broken | seconds: median, longest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in [*(kind for kind in FAULTS["local"] if kind in rows), "all runs"]:
        found = rows.get(kind, lines)
        counts = Counter(line["outcome"] for line in found)
        seconds = [line["seconds"] for line in found if line["seconds"] is not None]
        times = f"{statistics.median(seconds):.1f}, {max(seconds):.1f}" if seconds else ""
        broken = sum(count for outcome, count in counts.items() if outcome not in ALLOWED)
        table.append(
            f"| {kind} | {len(found)} | {counts['right result']} | {counts['error of Dask']} "
            f"| {counts['error of hyperplane']} | {counts['owner killed']} | {broken} | {times} |"
        )
    return "\n".join(table)


if __name__ == "__main__":
    main()
