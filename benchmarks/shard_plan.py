"""Planning of very many files: ``hyperplane.plan_shards``, and what a task reads of the plan.

The files are sparse, in folders of 1,000, with log-normal sizes (median 1.2 MB, the largest some
hundred times that). The plan is made in a separate process, listing included; imports are not
measured. Memory is the peak of the process minus its memory before.

    python benchmarks/shard_plan.py --files 1000000 --tasks 1000 --rounds 3
    python benchmarks/shard_plan.py --files 1000000 --tasks 1000 --folder EXISTING
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PER_FOLDER = 1_000


def make(folder: Path, files: int) -> None:
    """Create sparse files."""
    sizes = random.Random(0)
    for first in range(0, files, _PER_FOLDER):
        inside = folder / f"day-{first // _PER_FOLDER:04d}"
        inside.mkdir(parents=True)
        for number in range(min(_PER_FOLDER, files - first)):
            with (inside / f"part-{number:05d}.csv").open("wb") as file:
                file.truncate(int(sizes.lognormvariate(14, 1)))


def run_once(folder: str, tasks: int, plan: str) -> None:
    """Make a plan in this process, or read the part of one task; print figures as JSON."""
    import hyperplane
    import hyperplane.shards.plan  # names of hyperplane are imported on first use

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    cpu = time.process_time()
    result: dict[str, float] = {}
    if Path(plan).exists():
        share = hyperplane.planned_files(plan, tasks, tasks // 2)
        result |= {"files": len(share)}
    else:
        made = hyperplane.plan_shards(folder, tasks, plan)
        result |= {"files": made.files, "imbalance": made.imbalance}
    result |= {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000,
        "plan_megabytes": Path(plan).stat().st_size / 1e6,
    }
    print(json.dumps(result))


def measure(folder: str, tasks: int, plan: Path) -> dict[str, float]:
    """Run one measurement in a separate process."""
    words = [sys.executable, __file__, "--folder", folder, "--tasks", str(tasks)]
    answer = subprocess.run(
        [*words, "--once", str(plan)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(answer.stdout))


def main() -> None:
    """Print medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="use these files, and create none")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        run_once(options.folder, options.tasks, options.once)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or str(Path(temporary, "files"))
        if options.folder is None:
            make(Path(folder), options.files)
        for part in ("plan", "task"):
            rounds = []
            for number in range(options.rounds):
                plan = Path(temporary, f"plan-{number}.parquet")
                rounds.append(measure(folder, options.tasks, plan))
            medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
            print(part, {name: round(value, 4) for name, value in medians.items()}, flush=True)


if __name__ == "__main__":
    main()
