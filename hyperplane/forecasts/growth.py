"""How a figure of a unit grows with the size of its inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

#: Ratio of the sizes of two samples from which on they show how a figure grows with the size.
_SPREAD = 1.5


@dataclass(frozen=True)
class Growth:
    """A power law through one measured point: ``value * (x / at) ** exponent``."""

    at: float
    value: float
    exponent: float

    def __call__(self, x: float) -> float:
        """Return the value at ``x``."""
        if self.at <= 0 or x <= 0:
            return self.value if x > 0 or self.at <= 0 else 0.0
        return self.value * math.pow(x / self.at, self.exponent)


def fit_growth(points: Sequence[tuple[float, float]], largest: bool = False) -> Growth:
    """Fit a power law with an exponent from 0 (constant) to 1 (linear).

    Points of about the same size do not show an exponent; it is then 1. ``largest`` puts the law
    through the point that is the highest relative to its size, otherwise it is the mean.

    Examples
    --------
    >>> fit_growth([(10, 100), (20, 200)])(40), fit_growth([(10, 100), (20, 100)])(40)
    (400.0, 100.0)
    """
    known = [(x, y) for x, y in points if x > 0]
    if not known:
        values = [y for _, y in points]
        return Growth(0.0, (max(values) if largest else mean(values)) if values else 0.0, 0.0)
    (low, low_y), (high, high_y) = min(known), max(known)
    exponent = 1.0
    if high >= _SPREAD * low:
        grows = low_y > 0 and high_y > low_y
        exponent = min(1.0, math.log(high_y / low_y) / math.log(high / low)) if grows else 0.0
        if low_y <= 0 < high_y:
            exponent = 1.0
    at = high
    scaled = [y * math.pow(at / x, exponent) for x, y in known]
    return Growth(at, max(scaled) if largest else mean(scaled), exponent)
