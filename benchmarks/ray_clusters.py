"""Time to start a Ray cluster, to its first task, and to end it.

A is ``ray.cluster_utils.Cluster``, as Ray's own tests start several nodes on one machine; B is
``hyperplane.initialize_cluster(framework="ray")`` with the same nodes. Both have a head node
without cores, and worker nodes with one core and 0.5 GB. Each run is a separate process,
alternating.

    python benchmarks/ray_clusters.py --rounds 5
"""

from __future__ import annotations

import argparse

from abab import print_report, run_alternately

JOB = """
import json, sys, time
def measure(start, connect, end):
    began = time.perf_counter()
    started = start()
    usable = time.perf_counter() - began
    ray = connect(started)
    square = ray.remote(lambda number: number**2)
    assert ray.get([square.remote(number) for number in range(8)])[-1] == 49
    first = time.perf_counter() - began
    assert ray.cluster_resources()["CPU"] == NODES
    ending = time.perf_counter()
    end(started)
    ended = time.perf_counter() - ending
    print(json.dumps({"cluster": usable, "first task": first, "end": ended}))
"""

PLAIN = """
def start():
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={
        "num_cpus": 0, "include_dashboard": DASHBOARD, "object_store_memory": 80_000_000,
    })
    for _ in range(NODES):
        cluster.add_node(num_cpus=1, memory=350_000_000, object_store_memory=150_000_000)
    return cluster
def connect(cluster):
    import ray
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    return ray
def end(cluster):
    import ray
    ray.shutdown()
    cluster.shutdown()
measure(start, connect, end)
"""

OURS = """
def start():
    import hyperplane
    return hyperplane.start(hyperplane.plan_cluster(
        1, nprocs=NODES, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact", framework="ray",
        engine_options={"dashboard": DASHBOARD},
    ))
def connect(started):
    import ray
    ray.init(log_to_driver=False, logging_level="ERROR")
    return ray
def end(started):
    started.client.close()
    started.cluster.close()
measure(start, connect, end)
"""


def script(program: str, nodes: int, dashboard: bool) -> list[str]:
    """Return the arguments of the interpreter that runs one measurement."""
    text = (JOB + program).replace("NODES", str(nodes)).replace("DASHBOARD", str(dashboard))
    return ["-c", text]


def main() -> None:
    """Run the measurements and print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="*", default=[2])
    arguments = parser.parse_args()
    for nodes in arguments.nodes:
        for dashboard in (False, True):
            runs = {
                "plain": script(PLAIN, nodes, dashboard),
                "hyperplane": script(OURS, nodes, dashboard),
            }
            results = run_alternately(runs, arguments.rounds)
            title = f"{nodes} worker nodes, {'with' if dashboard else 'without'} dashboard"
            print_report(title, results, "hyperplane", "plain")


if __name__ == "__main__":
    main()
