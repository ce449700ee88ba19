"""The scheduler for short computations on bags."""

from __future__ import annotations

from typing import Any

import dask.base


def quick_scheduler() -> dict[str, Any]:
    """Return ``compute`` arguments for a short computation: threads, unless the user chose.

    The default of bags starts a process pool for each computation, which takes longer than
    reading a few records.
    """
    return {} if dask.base.get_scheduler() else {"scheduler": "threads"}
