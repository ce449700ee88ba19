"""One process with two threads against two processes with one thread, on dataframe queries.

The same queries on real flights (the demo's data) with both layouts, each run a separate process,
alternating. Times are those of the queries, after a first query that makes workers import modules.

    python benchmarks/layout.py --rounds 5 --data hyperplane-demo/flights
"""

from __future__ import annotations

import argparse

from abab import print_report, run_alternately

RUN = """
import json, time
from hyperplane import initialize_cluster
import dask.dataframe as dd

def group(flights):
    return flights.groupby(["carrier", "dest"])[["dep_delay", "air_time"]].mean().compute()

def join(flights):
    planes = flights[["tailnum", "distance"]].groupby("tailnum").distance.sum().reset_index()
    return len(flights[["tailnum", "carrier"]].merge(planes, on="tailnum").compute())

def shuffle(flights):
    known = flights[["tailnum", "dep_delay", "carrier"]].dropna(subset=["tailnum"])
    return len(known.set_index("tailnum").compute())

def scan(flights):
    return flights[flights.dep_delay > 15].distance.sum().compute()

def python(flights):
    return flights.dest.map_partitions(
        lambda s: s.map(lambda d: "".join(reversed(d))).value_counts(), meta=("dest", "int64")
    ).compute()

client, cluster = initialize_cluster(
    num_workers=1, nprocs=PROCS, nthreads=THREADS, ram_gb_per_proc=4 / PROCS, local_fit="exact"
)
flights = dd.read_parquet(DATA)
scan(flights)
seconds = {}
for job in (scan, group, join, shuffle, python):
    began = time.perf_counter()
    job(flights)
    seconds[job.__name__] = time.perf_counter() - began
client.close(); cluster.close()
print(json.dumps(seconds))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", required=True)
    arguments = parser.parse_args()

    def command(procs: int, threads: int) -> list[str]:
        text = RUN.replace("PROCS", str(procs)).replace("THREADS", str(threads))
        return ["-c", text.replace("DATA", repr(arguments.data))]

    results = run_alternately({"1 x 2": command(1, 2), "2 x 1": command(2, 1)}, arguments.rounds)
    print_report("queries on the flights", results, "1 x 2", "2 x 1")


if __name__ == "__main__":
    main()
