"""How many threads there are to share work among."""

from __future__ import annotations

import sys
from typing import Any

import dask.base
from dask.system import CPU_COUNT


def threads() -> int:
    """Threads of the cluster that is in use, or of this machine when there is none.

    Examples
    --------
    >>> threads() >= 1
    True
    """
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            client = distributed.default_client()
        except ValueError:
            return int(CPU_COUNT)
        if not client.asynchronous:
            return sum(client.nthreads().values()) or int(CPU_COUNT)
    return int(CPU_COUNT)


def quick_scheduler() -> dict[str, Any]:
    """Arguments of a compute that is short: threads, unless the user has chosen a scheduler.

    A bag's own default starts a pool of processes for each compute, which takes longer than to
    read a few records.
    """
    return {} if dask.base.get_scheduler() else {"scheduler": "threads"}
