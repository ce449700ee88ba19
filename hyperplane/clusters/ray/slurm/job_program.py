"""Program in jobs of the engine ``ray:slurm``: one worker node of Ray, as of ``job_connection``."""

from __future__ import annotations

from hyperplane.clusters.ray.worker_program import run_worker_node
from hyperplane.clusters.remote_nodes.job_connection import connect

if __name__ == "__main__":
    run_worker_node(connect())
