"""Program in jobs of the engine ``spark:slurm``: one worker of Spark, as of ``job_connection``."""

from __future__ import annotations

from hyperplane.clusters.remote_nodes.job_connection import connect
from hyperplane.clusters.remote_nodes.worker_program import run_worker
from hyperplane.clusters.spark.worker_program import SparkWorkerProgram

if __name__ == "__main__":
    connection = connect()
    run_worker(connection, connection.read_configuration(), SparkWorkerProgram())
