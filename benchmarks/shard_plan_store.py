"""Planning of very many objects of S3 or Google Cloud Storage: ``hyperplane.plan_shards`` of a URL.

The server is ``listing_server.py`` in another process, with objects in folders of 1,000, or all in
one with ``--flat``, and log-normal sizes (median 1.2 MB). ``--latency`` is the time before each
answer, as that of a distant store. The plan is made in a separate process, listing included;
imports are not measured. ``cpu`` and the memory are those of that process: its peak, and the peak
minus the memory before. ``seconds`` include the server. ``--find-files`` lists with ``find_files``,
that is with s3fs or gcsfs alone, and makes no plan.

    python -m benchmarks.shard_plan_store --objects 1000000
    python -m benchmarks.shard_plan_store --objects 1000000 --store gs
    python -m benchmarks.shard_plan_store --objects 100000 --find-files
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.listing_server import BUCKET

_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "sesame",
    "AWS_DEFAULT_REGION": "us-east-1",
    # Before its first request gcsfs calls a service by gRPC, which this server does not have.
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
}


def run_once(options: argparse.Namespace) -> None:
    """Make a plan in this process; print figures as JSON."""
    if options.store == "s3":
        import s3fs  # noqa: F401 - its import is not measured
    else:
        import gcsfs  # noqa: F401
    import hyperplane
    import hyperplane.shards.plan  # names of hyperplane are imported on first use
    from hyperplane.objectstore.listing import find_files

    given = {"token": "anon"} if options.store == "gs" else {}
    url = f"{options.store}://{BUCKET}/in"
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    cpu = time.process_time()
    figures: dict[str, float] = {}
    if options.find_files:
        figures["files"] = len(find_files(url, given))
    else:
        made = hyperplane.plan_shards(url, options.tasks, options.once, storage_options=given)
        figures |= {"files": made.files, "imbalance": made.imbalance}
    figures |= {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000,
    }
    print(json.dumps(figures))


def measure(address: str, plan: Path) -> dict[str, float]:
    """Run one measurement in a separate process."""
    words = [sys.executable, "-m", "benchmarks.shard_plan_store", *sys.argv[1:]]
    environment = {
        **os.environ, **_SETTINGS, "AWS_ENDPOINT_URL": address, "STORAGE_EMULATOR_HOST": address,
    }  # fmt: skip
    answer = subprocess.run(
        [*words, "--once", str(plan)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    return dict(json.loads(answer.stdout))


def main() -> None:
    """Print medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["s3", "gs"], default="s3")
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--flat", action="store_true", help="all objects in one folder")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--find-files", action="store_true", help="list with find_files")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        run_once(options)
        return
    words = [sys.executable, "-m", "benchmarks.listing_server", "--store", options.store]
    words += ["--objects", str(options.objects), "--latency", str(options.latency)]
    words += ["--flat"] * options.flat
    with (
        tempfile.TemporaryDirectory() as temporary,
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            plans = [Path(temporary, f"plan-{number}.parquet") for number in range(options.rounds)]
            rounds = [measure(address, plan) for plan in plans]
        finally:
            server.kill()
        medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        print({name: round(value, 4) for name, value in medians.items()}, flush=True)


if __name__ == "__main__":
    main()
