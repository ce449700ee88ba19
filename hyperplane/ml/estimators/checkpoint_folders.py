"""Folders for the checkpoints of a call of ``fit``."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles

#: Seconds in which the workers must answer; one that a signal has stopped does not.
_ANSWER_SECONDS = 5.0
#: Seconds for a file in a folder of checkpoints, which may be in an object store.
_WRITE_SECONDS = 60.0


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


def find_folder_faults(client: Any, url: str) -> list[Fault]:
    """Return the fault of a folder in ``model_dir`` to which a host of workers cannot write."""
    reasons = _run_on_hosts(client, _explain_unwritable, url, seconds=_WRITE_SECONDS)
    reason = next(filter(None, reasons.values()), None)
    allowed = f"a folder in which all workers can write files ({reason})"
    return [] if reason is None else [Fault("model_dir", repr(url), allowed)]


async def _explain_unwritable(url: str) -> str:
    """Return why this process cannot write files to a folder; empty if it can."""
    try:
        # In a thread: a worker calls this function in its event loop.
        await asyncio.to_thread(_write_probe, url)
    except RequestError as error:
        return "; ".join(fault.allowed for fault in error.faults)
    except Exception as error:  # noqa: BLE001 - of any file system
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _write_probe(url: str) -> None:
    """Write a file to a folder, which is created, and remove it."""
    target = resolve_target(url, None)
    files, probe = StoreFiles(target.store), f"{target.path}/.probe-{secrets.token_hex(4)}"
    files.put(probe, b"")
    files.remove([probe])


def _run_on_hosts(
    client: Any, function: Callable[..., Any], *args: Any, seconds: float = _ANSWER_SECONDS
) -> dict[str, Any]:
    """Run a function on one worker of each host; ignore workers that do not answer."""
    # Imported here because it loads distributed.
    from hyperplane.core.dask_internals.clients import run_on_workers

    with suppress(Exception):  # the client or the cluster is closed
        workers = client.scheduler_info(n_workers=-1)["workers"]
        hosts = {each["host"]: address for address, each in workers.items()}
        return run_on_workers(
            client, function, *args, workers=list(hosts.values()), seconds=seconds
        )
    return {}
