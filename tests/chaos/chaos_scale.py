"""Scale of the chaos tests: hours with ``HYPERPLANE_CHAOS=full``, as ``make chaos`` sets it."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

LONG = os.environ.get("HYPERPLANE_CHAOS") == "full"


def chaos_scaled(small: T, long: T) -> T:
    """Return the value for the scale of this run."""
    return long if LONG else small
