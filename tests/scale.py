"""How much of a test runs: ``HYPERPLANE_TEST_SCALE`` is ``small`` (the default) or ``full``.

``make test`` runs every test at the small scale; ``make stress`` runs the same tests with more
repetitions, larger data and more Hypothesis examples.
"""

from __future__ import annotations

import os
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

T = TypeVar("T")

SCALES = ("small", "full")
SCALE = os.environ.get("HYPERPLANE_TEST_SCALE", "small")
FULL = SCALE == "full"

if SCALE not in SCALES:
    raise ValueError(f"HYPERPLANE_TEST_SCALE={SCALE}: expected small or full")


def scaled(small: T, full: T) -> T:
    """Return the number for the scale of this run."""
    return full if FULL else small


def load_hypothesis_profile() -> None:
    """Set how many examples Hypothesis tries, and whether they are the same ones in each run.

    The small scale repeats the same examples, so that a change is judged by what it changes and
    not by chance; the full scale draws new ones, and prints how to repeat a failure.
    """
    # Hypothesis draws some values from the source of the modules that are imported by then: of
    # lazy imports, other ones with each order of the tests, even with the same seed. It has no
    # setting for this.
    none = providers.Constants()
    providers._get_local_constants = lambda: none
    common = {
        "deadline": None,
        "database": None,
        "print_blob": True,
        # How long drawing takes says more about the machine than about a strategy.
        "suppress_health_check": [HealthCheck.too_slow],
    }
    settings.register_profile("small", max_examples=20, derandomize=True, **common)
    # Said for this one too: Hypothesis takes True in CI, and then ignores the seed.
    settings.register_profile("full", max_examples=250, derandomize=False, **common)
    settings.load_profile(SCALE)
