"""``XShards.transform_shard`` against ``map_partitions`` of a Dask dataframe, on the same rows.

Shards of 25 MB are created on the workers; a function is applied to each, and one number per shard
returns. Each run is a separate process, alternating. The goal is at most 1.1 times the time of
``map_partitions``, and a client whose memory does not grow.

    python benchmarks/shards_of_objects.py --rounds 5 --gb 1
"""

from __future__ import annotations

import argparse

from abab import print_report, run_alternately

RUN = """
import json, threading, time
import dask.dataframe as dd, numpy as np, pandas as pd, psutil
from hyperplane import initialize_cluster
from hyperplane.ml import XShards

def make(number, rows):
    return pd.DataFrame({name: np.arange(rows) * 0.5 + number for name in "abcde"})

def change(frame):
    return frame.assign(f=np.sqrt(frame.a) + frame.b.rolling(5).mean()).sort_values("f")

def total(frame):
    return pd.DataFrame({"rows": [len(frame)], "sum": [frame.f.sum()]})

client, cluster = initialize_cluster(
    num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=4, local_fit="exact"
)
count = max(2, int(GB * 40))
rows = int(GB * 10**9 / count / 40)
df = dd.from_map(make, range(count), rows=rows, meta=make(0, 0)).persist()
shards = XShards.from_dataframe(df).compute()
process, most, running = psutil.Process(), 0, True

def watch():
    global most
    while running:
        most = max(most, process.memory_info().rss)
        time.sleep(0.02)

like, ends = change(make(0, 1)).iloc[:0], total(change(make(0, 1)))
def run():
    if KIND == "shards":
        return shards.transform_shard(change).transform_shard(total).concat_to_pdf()
    return df.map_partitions(change, meta=like).map_partitions(total, meta=ends).compute()

run()  # modules and memory of the workers
before = process.memory_info().rss
thread = threading.Thread(target=watch); thread.start()
began = time.perf_counter()
found = run()
seconds = time.perf_counter() - began
running = False; thread.join()
assert found["rows"].sum() == rows * count
client.close(); cluster.close()
print(json.dumps({"seconds": seconds, "client (MB, not s)": max(1.0, (most - before) / 1e6)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gb", type=float, default=1.0)
    arguments = parser.parse_args()

    def command(kind: str) -> list[str]:
        text = RUN.replace("KIND", repr(kind)).replace("GB", repr(arguments.gb))
        return ["-c", text]

    results = run_alternately(
        {"shards": command("shards"), "map_partitions": command("frames")}, arguments.rounds
    )
    print_report(f"{arguments.gb:g} GB of shards", results, "shards", "map_partitions")


if __name__ == "__main__":
    main()
