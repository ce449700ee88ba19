"""Program on hosts of the engine ``spark:ssh``: one worker of Spark, or a check of the host.

It receives its configuration, with the secret of the cluster, and ends with the ssh connection, as
:mod:`hyperplane.platforms.ssh.host_program` describes.
"""

from __future__ import annotations

from hyperplane.clusters.remote_nodes.worker_program import run_worker
from hyperplane.clusters.spark.worker_program import SparkWorkerProgram, find_machine_fault
from hyperplane.platforms.ssh import host_program


def main() -> None:
    """Check the host, or run the worker of the configuration."""
    configuration = host_program.read_configuration()
    if "worker" not in configuration:
        host_program.send_reply(fault=find_machine_fault(configuration["check"]))
    else:
        run_worker(host_program, configuration, SparkWorkerProgram())


if __name__ == "__main__":
    main()
