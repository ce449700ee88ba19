"""The freeze policy: what a worker process does as its memory fills."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from hyperplane.errors import Fault, RequestError
from hyperplane.public_calls import check_call

Threshold = float | Literal[False]

_KEY = "distributed.worker.memory."
_NAMES = ("target", "spill", "pause", "terminate")


@check_call
@dataclass(frozen=True)
class MemoryPolicy:
    """Fractions of a worker's memory at which it acts, or ``False`` for never.

    Parameters
    ----------
    target : float or False
        Managed data beyond this fraction is moved to disk, oldest first.
    spill : float or False
        Memory of the process beyond this fraction moves data to disk.
    pause : float or False
        Beyond this fraction the worker starts no new task (it freezes).
    terminate : float or False
        Beyond this fraction the process is ended and started anew.

    Raises
    ------
    RequestError
        When a threshold is not in (0, 1] or they do not rise.

    Notes
    -----
    The defaults are those that Dask ships and that the platform documents. The thresholds
    must rise, because each is the remedy for when the one before it was not enough.

    Examples
    --------
    >>> MemoryPolicy(pause=0.85, terminate=False).as_config()["distributed.worker.memory.pause"]
    0.85
    """

    target: Threshold = 0.60
    spill: Threshold = 0.70
    pause: Threshold = 0.80
    terminate: Threshold = 0.95

    def __post_init__(self) -> None:
        faults = policy_faults({name: getattr(self, name) for name in _NAMES}, "memory.")
        if faults:
            raise RequestError(faults)

    def as_config(self) -> dict[str, Threshold]:
        """The policy as Dask configuration, dotted key to value."""
        return {_KEY + name: getattr(self, name) for name in _NAMES}

    def as_env(self) -> dict[str, str]:
        """The policy as environment variables, for workers that another program starts."""
        return {
            "DASK_" + key.replace(".", "__").upper(): str(value)
            for key, value in self.as_config().items()
        }

    def to_dict(self) -> dict[str, Threshold]:
        """The four thresholds by name."""
        return asdict(self)

    def __str__(self) -> str:
        words = (
            f"{name} {value:.0%}" if value is not False else f"{name} never"
            for name, value in self.to_dict().items()
        )
        return ", ".join(words)


def policy_faults(values: Mapping[str, Any], where: str, source: str = "") -> list[Fault]:
    """All that is wrong with four thresholds given by name.

    Parameters
    ----------
    values : mapping of str to object
        The thresholds; those that are missing count as their defaults.
    where : str
        What to put before the name of a threshold in a fault.
    source : str
        The file that the values came from, if any.

    Returns
    -------
    list of Fault
        Empty when the policy can be used.
    """
    faults = []
    for name in values:
        if name not in _NAMES:
            near = difflib.get_close_matches(str(name), _NAMES, n=1)
            advice = f"did you mean {near[0]}?" if near else ""
            allowed = "one of " + ", ".join(_NAMES)
            faults.append(Fault(f"{where}{name}", repr(values[name]), allowed, advice, source))
    numbers: list[tuple[str, float]] = []
    for name in _NAMES:
        value = values.get(name, getattr(MemoryPolicy, name))
        if value is False:
            continue
        if not _is_fraction(value):
            allowed = "a fraction in (0, 1], or False for never"
            faults.append(Fault(where + name, repr(value), allowed, source=source))
        else:
            numbers.append((name, float(value)))
    for (lower, low), (upper, high) in pairwise(numbers):
        if low > high:
            allowed = f"at least {where}{lower} ({low:g})"
            advice = "the thresholds rise from target to terminate"
            faults.append(Fault(where + upper, f"{high:g}", allowed, advice, source))
    return faults


def _is_fraction(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= 1  # nan is not
