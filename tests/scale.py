"""Scale of the tests: ``HYPERPLANE_TEST_SCALE`` is ``small`` (the default) or ``full``.

``make test`` runs every test at the small scale; ``make stress`` runs the same tests with more
repetitions, larger data and more Hypothesis examples. ``HYPERPLANE_TEST_CALLS`` is the fraction of
the random calls of helpers that the full scale compares with pandas, by default all.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from itertools import product
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

T = TypeVar("T")

SCALES = ("small", "full")
SCALE = os.environ.get("HYPERPLANE_TEST_SCALE", "small")
FULL = SCALE == "full"
CALLS = float(os.environ.get("HYPERPLANE_TEST_CALLS", "1"))

if SCALE not in SCALES:
    raise ValueError(f"HYPERPLANE_TEST_SCALE={SCALE}: expected small or full")


def scaled(small: T, full: T) -> T:
    """Return the value for the scale of this run."""
    return full if FULL else small


def scaled_calls(small: int, full: int) -> int:
    """Return a number of random calls of helpers, or of examples with such calls."""
    return scaled(small, int(full * CALLS))


def combinations(*parameters: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations of the values of parameters; at small scale each value at least once.

    A combination that once was a bug belongs in a separate test, or is one value of a parameter.
    """
    if FULL:
        return list(product(*parameters))
    values = [list(each) for each in parameters]
    # Each round through the values of a parameter begins at another value, so that two parameters
    # with equally many values do not always change together.
    return [
        tuple(each[(n + n // len(each) * shift) % len(each)] for shift, each in enumerate(values))
        for n in range(max(map(len, values)))
    ]


def load_hypothesis_profile() -> None:
    """Set the number of examples of Hypothesis, and whether each run has the same ones.

    The small scale repeats the same examples, so that only a change of the code changes results;
    the full scale draws new ones, and prints how to repeat a failure.
    """
    # Hypothesis draws some values from the source of imported modules. Because of lazy imports
    # these differ with the order of tests, even with the same seed. It has no setting for this.
    none = providers.Constants()
    providers._get_local_constants = lambda: none
    common = {
        "deadline": None,
        "database": None,
        "print_blob": True,
        # The duration of drawing depends more on the machine than on the strategy.
        "suppress_health_check": [HealthCheck.too_slow],
    }
    settings.register_profile("small", max_examples=20, derandomize=True, **common)
    # Explicit, because the default in CI is True, with which Hypothesis ignores the seed.
    settings.register_profile("full", max_examples=250, derandomize=False, **common)
    settings.load_profile(SCALE)
