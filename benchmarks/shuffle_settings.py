"""Memory of shuffles with other settings of Dask's p2p, and with smaller and larger partitions.

    python -m benchmarks.shuffle_settings [--rounds 5] [--mb 600] [--jobs set_index sort merge]

Jobs of ``benchmarks.admission`` on two processes of 1 GB. One setting changes at a time, in turn
within each round: those of the tuning, values near Dask's in their place, and partitions of half
and twice the size, by which the number of output partitions changes, too. The table has the medians
of wall and CPU seconds, and the least, the median and the largest peak of a worker process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.admission import run_in_process

PARTITION_MB = 32.0
P2P = "DASK_DISTRIBUTED__P2P__"
#: Name of a variant -> environment of the program, and factor of the size of partitions. Values
#: that are exactly Dask's defaults (10, 1 GiB) would not count as chosen by the user.
VARIANTS: dict[str, tuple[dict[str, str], float]] = {
    "tuning": ({}, 1.0),
    "concurrency of 9": ({f"{P2P}COMM__CONCURRENCY": "9"}, 1.0),
    "buffer of 1 GB to send": ({f"{P2P}COMM__BUFFER": "1 GB"}, 1.0),
    "buffer of 30 MB for files": ({f"{P2P}STORAGE__BUFFER": "30 MB"}, 1.0),
    "partitions of half the size": ({}, 0.5),
    "partitions of twice the size": ({}, 2.0),
}


@contextmanager
def set_environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for the programs that are started within the block."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def main() -> None:
    """Run the jobs of the command line, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mb", type=float, default=600)
    parser.add_argument("--jobs", nargs="+", default=["set_index", "sort", "merge"])
    parser.add_argument("--limit-s", type=float, default=300)
    options = parser.parse_args()
    print("| job | settings | right | wall s | CPU s | peak MB: least, median, largest |")
    print("|---|---|---|---|---|---|")
    for job in options.jobs:
        runs: dict[str, list[dict[str, float | str]]] = {name: [] for name in VARIANTS}
        for _ in range(options.rounds):
            for name, (variables, factor) in VARIANTS.items():
                with set_environment(variables):
                    runs[name].append(
                        run_in_process(
                            job, "hyperplane", options.mb, factor * PARTITION_MB, options.limit_s
                        )
                    )
        for name, done in runs.items():
            right = sum(each["outcome"] == "ok" for each in done)
            wall, cpu, peak = (
                [float(each.get(key, 0.0)) for each in done]
                for key in ("wall_s", "cpu_s", "peak_mb")
            )
            print(
                f"| {job} | {name} | {right} of {len(done)} | {median(wall):.1f} | "
                f"{median(cpu):.1f} | {min(peak):.0f}, {median(peak):.0f}, {max(peak):.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
