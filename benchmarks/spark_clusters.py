"""Time to start a Spark cluster, to its first job, and to end it.

A starts the same processes with the classes of Spark itself, ``spark-class ...Master`` and
``...Worker``, with authentication, and a session of ``SparkSession.builder``; B is
``hyperplane.initialize_cluster(framework="spark")``. Both have a master, and workers with one core
and 0.95 GB. Each run is a separate process, alternating. ``local[n]`` is a session of pyspark
without a cluster, for comparison: it has neither a master nor workers.

    python benchmarks/spark_clusters.py --rounds 5
"""

from __future__ import annotations

import argparse

from abab import print_report, run_alternately

JOB = """
import json, time
def measure(start, connect, end):
    began = time.perf_counter()
    started = start()
    usable = time.perf_counter() - began
    spark = connect(started)
    assert spark.sparkContext.parallelize(range(8), NODES).map(lambda n: n * n).sum() == 140
    first = time.perf_counter() - began
    ending = time.perf_counter()
    end(started, spark)
    ended = time.perf_counter() - ending
    print(json.dumps({"cluster": usable, "first job": first, "end": ended}))
"""

LOCAL = """
def start():
    import pyspark
def connect(started):
    from pyspark.sql import SparkSession
    return SparkSession.builder.master("local[NODES]").getOrCreate()
def end(started, spark):
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
measure(start, connect, end)
"""

PLAIN = """
import os, secrets, subprocess, tempfile, time, urllib.request
from pathlib import Path
folder = tempfile.TemporaryDirectory()
def start():
    import pyspark
    home = Path(pyspark.__file__).parent
    Path(folder.name, "spark-defaults.conf").write_text(
        "spark.authenticate=true\\nspark.authenticate.secret=" + secrets.token_hex(32) + "\\n"
        "spark.driver.host=127.0.0.1\\nspark.executor.memory=512m\\nspark.ui.port=0\\n"
    )
    os.environ.update(SPARK_CONF_DIR=folder.name, SPARK_LOCAL_IP="127.0.0.1", SPARK_HOME=str(home))
    run = [str(home / "bin" / "spark-class")]
    pages = Path(folder.name, "log").open("w")
    options = {"stdout": pages, "stderr": pages, "cwd": folder.name}
    package = "org.apache.spark.deploy"
    master = subprocess.Popen(
        [*run, f"{package}.master.Master", "--host", "127.0.0.1", "--port", "PORT",
         "--webui-port", "PAGE"], **options)
    address = "spark://127.0.0.1:PORT"
    workers = [subprocess.Popen(
        [*run, f"{package}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory",
         "900m", "--webui-port", "0", "--work-dir", folder.name, address], **options)
        for _ in range(NODES)]
    while True:
        try:
            with urllib.request.urlopen("http://127.0.0.1:PAGE/json/", timeout=20) as page:
                if json.load(page)["aliveworkers"] == NODES:
                    return [*workers, master], address
        except OSError:
            pass
        time.sleep(0.05)
def connect(started):
    from pyspark.sql import SparkSession
    return SparkSession.builder.master(started[1]).getOrCreate()
def end(started, spark):
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    for process in started[0]:
        process.terminate()
    for process in started[0]:
        process.wait()
measure(start, connect, end)
"""

OURS = """
def start():
    import hyperplane
    return hyperplane.start(hyperplane.plan_cluster(
        1, nprocs=NODES, nthreads=1, ram_gb_per_proc=0.95, local_fit="exact", framework="spark",
    ))
def connect(started):
    return started.client.spark
def end(started, spark):
    started.client.close()
    started.cluster.close()
measure(start, connect, end)
"""


def script(program: str, nodes: int) -> list[str]:
    """Return the arguments of the interpreter that runs one measurement."""
    text = (JOB + program).replace("NODES", str(nodes))
    return ["-c", text.replace("PORT", "17077").replace("PAGE", "17078")]


def main() -> None:
    """Run the measurements and print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="*", default=[2])
    arguments = parser.parse_args()
    for nodes in arguments.nodes:
        programs = {"local[n]": LOCAL, "plain": PLAIN, "hyperplane": OURS}
        runs = {name: script(program, nodes) for name, program in programs.items()}
        results = run_alternately(runs, arguments.rounds)
        for theirs in ("plain", "local[n]"):
            print_report(f"{nodes} workers, against {theirs}", results, "hyperplane", theirs)


if __name__ == "__main__":
    main()
