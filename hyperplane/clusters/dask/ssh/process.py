"""Program on hosts of the ssh engine: a scheduler, or the worker processes of one node.

It receives its configuration, with key pair and settings, and ends with the ssh connection, as
:mod:`hyperplane.platforms.ssh.host_program` describes. It watches the connection before it imports
Dask, which takes seconds on a busy host: a program that is killed meanwhile leaves nothing.
"""

from __future__ import annotations

from hyperplane.platforms.ssh.host_program import OwnerPipe, read_configuration


def main() -> None:
    """Start the servers of the configuration on standard input, and run until it is closed."""
    config = read_configuration()
    owner = OwnerPipe()
    from hyperplane.clusters.dask.ssh.host_servers import run_servers

    run_servers(config, owner)


if __name__ == "__main__":
    main()
