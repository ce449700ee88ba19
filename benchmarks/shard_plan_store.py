"""Planning of very many objects of S3: ``hyperplane.plan_shards`` of a URL.

The server is that of moto, as in the tests, in another process. Its objects have log-normal sizes
(median 1.2 MB) and no content; they are put into its memory without requests. moto sorts all keys
for each page of 1,000 objects, so that its time grows with the square of their number. With
``--pages`` it makes the objects of each page instead, from the number of the first. The plan is
made in a separate process, listing included; imports are not measured. ``cpu`` and the memory are
those of that process: its peak, and the peak minus the memory before. ``seconds`` include the
server.

    python -m benchmarks.shard_plan_store --objects 100000
    python -m benchmarks.shard_plan_store --objects 1000000 --pages
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_BUCKET, _PER_FOLDER = "files", 1_000
_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "sesame",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def _key(number: int) -> str:
    """Return the key of an object; keys are in the order of their numbers."""
    return f"in/day-{number // _PER_FOLDER:04d}/part-{number % _PER_FOLDER:05d}.csv"


def make_objects(numbers: Iterable[int]) -> Iterator[Any]:
    """Yield objects of moto, which share their content, as each would have a temporary file."""
    from moto.s3.models import FakeKey

    etag = "d41d8cd98f00b204e9800998ecf8427e"
    first = FakeKey("", b"", account_id="123456789012", region_name="us-east-1", etag=etag)
    for number in numbers:
        made: Any = object.__new__(FakeKey)  # moto keeps those that its own constructor makes
        size = int(random.Random(number).lognormvariate(14, 1))
        vars(made).update(vars(first), name=_key(number), contentsize=size)
        yield made


def serve(objects: int, *, pages: bool) -> None:
    """Serve objects until the process is ended; print the address."""
    from moto.s3.models import S3Backend, s3_backends
    from moto.server import ThreadedMotoServer

    backend: Any = s3_backends["123456789012"]["aws"]
    backend.create_bucket(_BUCKET, "us-east-1")

    def list_page(
        self: Any, *, delimiter: str, continuation_token: str, max_keys: int, **others: Any
    ) -> Any:
        """Return the objects of a page, its truncation, and the token of the next one."""
        del self, others
        if delimiter:  # whether there is a folder
            return [_key(0).rpartition("/")[0] + "/"], False, None
        first = int(continuation_token or 0)
        last = min(objects, first + max_keys)
        return (
            [*make_objects(range(first, last))],
            last < objects,
            str(last) if last < objects else None,
        )

    if pages:
        S3Backend.list_objects_v2 = list_page
    else:
        for made in make_objects(range(objects)):
            backend.buckets[_BUCKET].keys[made.name] = made
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()


def run_once(tasks: int, plan: str) -> None:
    """Make a plan in this process; print figures as JSON."""
    import s3fs  # noqa: F401 - its import is not measured

    import hyperplane
    import hyperplane.shards.plan  # names of hyperplane are imported on first use

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    cpu = time.process_time()
    made = hyperplane.plan_shards(f"s3://{_BUCKET}/in", tasks, plan)
    figures = {
        "files": made.files,
        "imbalance": made.imbalance,
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000,
    }
    print(json.dumps(figures))


def measure(address: str, tasks: int, plan: Path) -> dict[str, float]:
    """Run one measurement in a separate process."""
    words = [sys.executable, __file__, "--tasks", str(tasks), "--once", str(plan)]
    environment = {**os.environ, **_SETTINGS, "AWS_ENDPOINT_URL": address}
    answer = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return dict(json.loads(answer.stdout))


def main() -> None:
    """Print medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--pages", action="store_true", help="make the objects of each page")
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.objects, pages=options.pages)
        return
    if options.once:
        run_once(options.tasks, options.once)
        return
    words = [sys.executable, __file__, "--serve", "--objects", str(options.objects)]
    words += ["--pages"] * options.pages
    # moto writes a line for each request.
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with (
        tempfile.TemporaryDirectory() as temporary,
        subprocess.Popen(words, **pipes, text=True) as server,
    ):
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            plans = [Path(temporary, f"plan-{number}.parquet") for number in range(options.rounds)]
            rounds = [measure(address, options.tasks, plan) for plan in plans]
        finally:
            server.kill()
        medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        print({name: round(value, 4) for name, value in medians.items()}, flush=True)


if __name__ == "__main__":
    main()
