"""Interval of a forecast: the errors of measured runs, scaled to a confidence.

The ranges were chosen by runs as those in docs/explanation/forecast.md, which are few: the
confidence is nominal. They are fractions of the growth over an empty worker, whose memory is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

#: Confidence of the ranges below.
_MEASURED_CONFIDENCE = 0.9
#: Share of the growth by which the peak may be lower and higher.
STREAMING = (0.35, 0.65)
SHUFFLING = (0.45, 0.45)
#: Factor of both ranges if the peaks of the sample were not measured by the kernel.
INEXACT = 1.5
#: Bytes that two runs of one job differ at least.
_LEAST = 15 * 10**6


@dataclass(frozen=True)
class Interval:
    """A value and the limits between which it is expected."""

    value: float
    low: float
    high: float


def find_interval(
    peaks: Sequence[float],
    empty: float,
    confidence: float = _MEASURED_CONFIDENCE,
    shuffles: bool = False,
    exact: bool = True,
) -> Interval:
    """Return the peak of several simulations with its interval.

    Examples
    --------
    >>> found = find_interval([300e6, 300e6, 310e6], empty=200e6)
    >>> round(found.value / 1e6), round(found.low / 1e6), round(found.high / 1e6)
    (300, 265, 365)
    """
    value = median(peaks)
    below, above = SHUFFLING if shuffles else STREAMING
    scale = _quantile(confidence) / _quantile(_MEASURED_CONFIDENCE)
    scale *= 1.0 if exact else INEXACT
    growth = max(0.0, value - empty)
    low = value - max(_LEAST, growth * below) * scale
    high = value + max(_LEAST, growth * above) * scale
    return Interval(value, max(min(empty, value), min(low, *peaks)), max(high, *peaks))


def _quantile(confidence: float) -> float:
    """Return how many deviations of a normal distribution an interval has on each side."""
    return NormalDist().inv_cdf((1 + confidence) / 2)
