"""One shard of a large CSV: ``shard_rows`` against reading the whole file.

Each run is a separate process, alternating. The file is written once; imports are not measured.
Memory is the peak of the process minus its memory before it reads.

    python benchmarks/shard_rows.py --size 1GB --shards 8 --rounds 5
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path

import abab

ROWS = 200_000


def make(path: Path, size: int) -> None:
    """Write rows of numbers, words and some texts of two lines, up to a size."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    words = np.array([f"word-{number}" for number in range(5_000)])
    note = np.array(["short", "with, comma", 'of\n"two" lines'])
    block = pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "user": rng.integers(0, 10**6, ROWS),
            "price": rng.random(ROWS).round(6),
            "weight": rng.normal(size=ROWS).round(6),
            "word": words[rng.integers(0, 5_000, ROWS)],
            "note": note[rng.choice(3, ROWS, p=[0.9, 0.05, 0.05])],
        }
    )
    text = block.to_csv(index=False).encode()
    header, _, rows = text.partition(b"\n")
    with path.open("wb") as file:
        file.write(header + b"\n")
        while file.tell() < size:
            file.write(rows)


def run_once(how: str, path: str, shards: int) -> None:
    """Run one measurement in this process; print it as JSON."""
    import numpy as np
    import pandas as pd

    import hyperplane

    read = hyperplane.shard_rows
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    if how == "ours":
        share = read(path, shards, shards // 2)
    else:
        table = pd.read_csv(path)
        positions = np.array_split(np.arange(len(table)), shards)[shards // 2]
        share = table.iloc[positions]
    seconds = time.perf_counter() - start
    assert len(share)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"time [s]": seconds, "memory [GB]": (peak - before) * 1024 / 1e9}))


def main() -> None:
    from hyperplane.core.units import parse_bytes

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="folder of the file; a temporary folder by default")
    parser.add_argument("--once", nargs=2, metavar=("HOW", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        run_once(*arguments.once, arguments.shards)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder, "big.csv")
        make(path, parse_bytes(arguments.size))
        size = path.stat().st_size
        commands = {
            name: [__file__, "--shards", str(arguments.shards), "--once", name, str(path)]
            for name in ("load all", "ours")
        }
        results = abab.run_alternately(commands, arguments.rounds)
    shards, rounds = arguments.shards, arguments.rounds
    print(f"One of {shards} shards of a CSV of {size / 1e9:.2f} GB, {rounds} rounds")
    print(f"{'':14}{'load all':>10}{'ours':>10}   ratio (min-max)")
    for key, ours in results["ours"].items():
        theirs = results["load all"][key]
        ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
        print(
            f"{key:14}{statistics.median(theirs):10.3f}{statistics.median(ours):10.3f}   "
            f"{statistics.median(ratios):.1f} ({min(ratios):.1f}-{max(ratios):.1f})"
        )


if __name__ == "__main__":
    main()
