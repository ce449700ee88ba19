"""Where a bag's short computations run."""

from __future__ import annotations

from typing import Any

import dask.base


def quick_scheduler() -> dict[str, Any]:
    """Arguments of a compute that is short: threads, unless the user has chosen a scheduler.

    A bag's own default starts a pool of processes for each compute, which takes longer than to
    read a few records.
    """
    return {} if dask.base.get_scheduler() else {"scheduler": "threads"}
