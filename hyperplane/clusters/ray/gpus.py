"""GPUs of worker nodes of Ray: which ones of its machine each has."""

from __future__ import annotations

from collections.abc import Collection

from hyperplane.core.units import plural
from hyperplane.platforms.local.gpus import VARIABLE, detect_gpus


def find_free_gpus(used: Collection[str]) -> list[str]:
    """Return the GPUs of this machine that this process may use, without those in use."""
    return [name for name in detect_gpus().visible if name not in used]


def choose_gpus(count: int, index: int) -> list[str]:
    """Return the GPUs of one of several worker nodes on this machine.

    Parameters
    ----------
    count : int
        GPUs of each worker node.
    index : int
        Index of the worker node among those of the same machine.

    Raises
    ------
    RuntimeError
        If the machine has too few.
    """
    visible = detect_gpus().visible
    chosen = visible[index * count : (index + 1) * count]
    if len(chosen) < count:
        others = f" beside {index * count} of others" if index else ""
        raise RuntimeError(
            f"the worker node needs {plural(count, 'GPU')}{others}, but its machine has "
            f"{plural(len(visible), 'GPU')} for this user (see {VARIABLE}); request fewer"
        )
    return [*chosen]
