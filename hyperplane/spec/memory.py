"""Memory policy: thresholds at which a worker spills, pauses or restarts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from hyperplane.core.errors import Fault, RequestError, UnknownKey
from hyperplane.core.public_calls import check_call

Threshold = float | Literal[False]

_KEY = "distributed.worker.memory."
_NAMES = ("target", "spill", "pause", "terminate")


@check_call
@dataclass(frozen=True)
class MemoryPolicy:
    """Thresholds of a worker's memory, as fractions of its limit; ``False`` disables one.

    Parameters
    ----------
    target : float or False
        If managed data exceeds this fraction, the least recently used data is moved to disk.
    spill : float or False
        If process memory exceeds this fraction, data is moved to disk.
    pause : float or False
        If process memory exceeds this fraction, the worker starts no new task.
    terminate : float or False
        If process memory exceeds this fraction, the nanny restarts the worker process.

    Raises
    ------
    RequestError
        If a threshold is not in (0, 1] or is lower than the one before it.

    Notes
    -----
    The defaults are those of Dask and of the platform's documentation. No threshold may be below
    the one before it, because each takes effect when that one was not sufficient.

    Examples
    --------
    >>> MemoryPolicy(pause=0.85, terminate=False).as_config()["distributed.worker.memory.pause"]
    0.85
    """

    # config/memory.yaml has the same values (tests/spec/test_spec_defaults.py compares them).
    target: Threshold = 0.60
    spill: Threshold = 0.70
    pause: Threshold = 0.80
    terminate: Threshold = 0.95

    def __post_init__(self) -> None:
        faults = find_policy_faults({name: getattr(self, name) for name in _NAMES}, "memory.")
        if faults:
            raise RequestError(faults)

    def as_config(self) -> dict[str, Threshold]:
        """Return the policy as Dask configuration: dotted keys and values."""
        return {_KEY + name: getattr(self, name) for name in _NAMES}

    def as_env(self) -> dict[str, str]:
        """Return the policy as environment variables for worker processes."""
        return {
            "DASK_" + key.replace(".", "__").upper(): str(value)
            for key, value in self.as_config().items()
        }

    def to_dict(self) -> dict[str, Threshold]:
        """Return the four thresholds by name."""
        return asdict(self)

    def __str__(self) -> str:
        words = (
            f"{name} {value:.0%}" if value is not False else f"{name} never"
            for name, value in self.to_dict().items()
        )
        return ", ".join(words)


def find_policy_faults(values: Mapping[str, Any], where: str) -> list[Fault]:
    """Return the faults of thresholds given by name; missing ones have their defaults.

    ``where`` is prepended to the names in the faults.
    """
    faults: list[Fault] = []
    for name in values:
        if name not in _NAMES:
            near = difflib.get_close_matches(str(name), _NAMES, n=1)
            advice = f"did you mean {near[0]}?" if near else ""
            allowed = "one of " + ", ".join(_NAMES)
            faults.append(UnknownKey(f"{where}{name}", repr(values[name]), allowed, advice))
    numbers: list[tuple[str, float]] = []
    for name in _NAMES:
        value = values.get(name, getattr(MemoryPolicy, name))
        if value is False:
            continue
        if not _is_fraction(value):
            allowed = "a fraction in (0, 1], or False for never"
            faults.append(Fault(where + name, repr(value), allowed))
        else:
            numbers.append((name, float(value)))
    for (lower, low), (upper, high) in pairwise(numbers):
        if low > high:
            allowed = f"at least {where}{lower} ({low:g})"
            advice = "no threshold may be below the one before it"
            faults.append(Fault(where + upper, f"{high:g}", allowed, advice))
    return faults


def _is_fraction(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= 1  # false for nan
