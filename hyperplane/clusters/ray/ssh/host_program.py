"""Program on hosts of the engine ``ray:ssh``: one worker node of Ray.

It receives its configuration, with token and certificates, and ends with the ssh connection, as
:mod:`hyperplane.platforms.ssh.host_program` describes.
"""

from __future__ import annotations

from hyperplane.clusters.ray.worker_program import run_worker_node
from hyperplane.platforms.ssh import host_program

if __name__ == "__main__":
    run_worker_node(host_program)
