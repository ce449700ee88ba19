"""Jobs whose messages are collections of Python objects, on the clusters of Dask and hyperplane.

    python benchmarks/list_messages.py --rounds 3

Both clusters have two worker processes of one thread. The figures are CPU seconds of all processes
of a run, of its workers in each job, and the time of each job.
"""

from __future__ import annotations

import argparse

from abab import print_report, run_alternately

RUN = """
import json, time
import dask.bag as db

def words():  # counts of 20,000 words in 16 partitions, which are merged
    numbers = db.range(400_000, npartitions=16)
    counts = numbers.map(lambda n: f"word{n * 7919 % 20_000}").frequencies()
    return len(counts.compute())

def groups():  # a shuffle of pairs between the workers
    pairs = db.range(60_000, npartitions=6).map(lambda n: (n % 50, {"number": n, "text": str(n)}))
    return len(pairs.groupby(lambda pair: pair[0], npartitions=6).map(len).compute())

def records():  # the result is in this process
    made = db.range(100_000, npartitions=4).map(lambda n: {"number": n, "text": str(n)})
    return len(made.compute())

def numbers():
    return len(client.submit(lambda: [1.5] * 500_000).result())

START
seconds = {}
for job in (words, groups, records, numbers):
    cpu = lambda: sum(client.run(time.process_time).values())
    before, began = cpu(), time.perf_counter()
    job()
    seconds[job.__name__] = time.perf_counter() - began
    seconds[f"{job.__name__}, CPU of workers"] = cpu() - before
client.close(); cluster.close()
print(json.dumps(seconds))
"""
OURS = """
import hyperplane
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=2, local_fit="exact"
)
"""
THEIRS = """
from distributed import Client, LocalCluster
cluster = LocalCluster(
    n_workers=2, threads_per_worker=1, memory_limit="2GB", dashboard_address=":0"
)
client = Client(cluster)
"""


def main() -> None:
    """Run the jobs alternately and print a report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    commands = {
        "hyperplane": ["-c", RUN.replace("START", OURS)],
        "LocalCluster": ["-c", RUN.replace("START", THEIRS)],
    }
    results = run_alternately(commands, arguments.rounds)
    print_report("messages of Python objects", results, "hyperplane", "LocalCluster")


if __name__ == "__main__":
    main()
