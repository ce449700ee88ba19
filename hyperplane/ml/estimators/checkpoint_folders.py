"""Folders for the checkpoints of a call of ``fit``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

#: Seconds in which the workers must answer; one that a signal has stopped does not.
_ANSWER_SECONDS = 5.0


@contextmanager
def temporary_checkpoints(client: Any) -> Iterator[str]:
    """Create a private folder on the hosts of all workers; remove it at the end.

    Rank 0, which may run on any host, writes and reads the checkpoints. Ranks on workers that start
    later create the folder themselves.
    """
    folder = tempfile.mkdtemp(prefix="hyperplane-checkpoints-")
    try:
        _run_on_hosts(client, os.makedirs, folder, 0o700, True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _run_on_hosts(client, shutil.rmtree, folder, True)


def _run_on_hosts(client: Any, function: Callable[..., Any], *args: Any) -> None:
    """Run a function on one worker of each host; ignore workers that do not answer."""
    # Imported here because it loads distributed.
    from hyperplane.core.dask_internals.clients import run_on_workers

    with suppress(Exception):  # the client or the cluster is closed
        workers = client.scheduler_info(n_workers=-1)["workers"]
        hosts = {each["host"]: address for address, each in workers.items()}
        run_on_workers(
            client, function, *args, workers=list(hosts.values()), seconds=_ANSWER_SECONDS
        )
