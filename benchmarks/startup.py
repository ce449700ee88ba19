"""Time to start a cluster, and to the first dataframe result.

A is a plain ``LocalCluster``, B is ``hyperplane.initialize_cluster`` with the same layout. Each run
is a separate process, alternating; ``dask.distributed`` is imported before the measurement.

    python benchmarks/startup.py --rounds 7
"""

from __future__ import annotations

import argparse

from abab import print_report, run_alternately

# Common code of both runs: the measurement, and the first job of a notebook.
JOB = """
import json, sys, time
import dask.distributed
IMPORTED_BEFORE
def job():
    import dask.dataframe as dd, pandas as pd
    frame = pd.DataFrame({"carrier": ["AA", "UA"] * 5000, "delay": range(10000)})
    return dd.from_pandas(frame, npartitions=4).groupby("carrier").delay.mean().compute()

def measure(start):
    began = time.perf_counter()
    client, cluster = start()
    usable = time.perf_counter() - began
    assert len(client.nthreads()) == PROCS
    assert job()["UA"] == 5000
    first = time.perf_counter() - began
    client.close(); cluster.close()
    print(json.dumps({"usable cluster": usable, "first dataframe result": first}))
"""

PLAIN = """
def start():
    from dask.distributed import Client, LocalCluster
    cluster = LocalCluster(
        n_workers=PROCS, threads_per_worker=THREADS, memory_limit=2 * 10**9,
        dashboard_address="127.0.0.1:0",
    )
    return Client(cluster), cluster
if __name__ == "__main__":
    measure(start)
"""

OURS = """
from hyperplane import initialize_cluster
def start():
    return initialize_cluster(
        num_workers=1, nprocs=PROCS, nthreads=THREADS, ram_gb_per_proc=2.0, local_fit="exact",
    )
if __name__ == "__main__":
    measure(start)
"""

IMPORT = """
import json, subprocess, sys, time
began = time.perf_counter()
subprocess.run([sys.executable, "-c", "import MODULE"], check=True)
print(json.dumps({"import": time.perf_counter() - began}))
"""


def script(start: str, procs: int, threads: int, imported_before: str) -> list[str]:
    text = JOB.replace("IMPORTED_BEFORE", imported_before) + start
    return ["-c", text.replace("PROCS", str(procs)).replace("THREADS", str(threads))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layouts", nargs="*", default=["1x2", "2x1", "4x1"])
    arguments = parser.parse_args()
    imports = {
        "dask.distributed": ["-c", IMPORT.replace("MODULE", "dask.distributed")],
        "hyperplane": ["-c", IMPORT.replace("MODULE", "hyperplane")],
        "both": ["-c", IMPORT.replace("MODULE", "dask.distributed, hyperplane")],
        "hyperplane, used": ["-c", IMPORT.replace("MODULE", "hyperplane; hyperplane.size_cluster")],
    }
    results = run_alternately(imports, arguments.rounds)
    for name in list(imports)[1:]:
        print_report("import in a new process", results, name, "dask.distributed")
    for layout in arguments.layouts:
        procs, threads = map(int, layout.split("x"))
        for situation, before in (
            ("a new script", ""),
            ("dask.dataframe imported before", "import dask.dataframe"),
        ):
            runs = {
                "plain": script(PLAIN, procs, threads, before),
                "hyperplane": script(OURS, procs, threads, before),
            }
            results = run_alternately(runs, arguments.rounds)
            title = f"{procs} processes x {threads} threads, {situation}"
            print_report(title, results, "hyperplane", "plain")


if __name__ == "__main__":
    main()
