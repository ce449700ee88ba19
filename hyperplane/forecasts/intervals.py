"""Interval of a forecast: the errors of measured runs, scaled to a confidence.

The ranges were chosen by runs as those in docs/explanation/forecast.md, which are few: the
confidence is nominal. They are fractions of the growth over an empty worker, whose memory is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

#: Confidence of the ranges below.
_MEASURED_CONFIDENCE = 0.9
#: Share of the growth by which the peak may be lower and higher, by the class of a job: the errors
#: of measured runs between which 90 % of them were, and the extremes of fewer than 20, rounded up.
#: Jobs with tables that neither write nor shuffle have one range for one thread and one for more,
#: whose freed memory is counted; others are arrays and Python objects.
TABLES, TABLES_OF_THREADS = (0.2, 0.18), (0.22, 0.22)
OTHERS = (0.28, 0.28)
WRITING = (0.2, 0.45)
SHUFFLING = (0.3, 0.3)
#: Share of the growth by which the memory that a job needs may be higher, on a layout whose
#: processes have little more and so return what they free to the system. Measured without shuffles
#: and written files; for these it is that of the interval.
DEMAND = 0.1
#: Factor of both ranges if the peaks of the sample were not measured by the kernel.
INEXACT = 1.5
#: Deviation of the logarithm of the ratio of measured to forecast CPU seconds, and to wall time: of
#: the measured runs, and of those whose forecast is from earlier runs.
CPU_DEVIATION, WALL_DEVIATION = 0.3, 0.45
PAST_CPU_DEVIATION, PAST_WALL_DEVIATION = 0.2, 0.45
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
    writes: bool = False,
    exact: bool = True,
    tables: bool = True,
    threads: int = 1,
) -> Interval:
    """Return the peak of several simulations with its interval.

    Examples
    --------
    >>> found = find_interval([300e6, 300e6, 310e6], empty=200e6)
    >>> round(found.value / 1e6), round(found.low / 1e6), round(found.high / 1e6)
    (300, 280, 318)
    """
    value = median(peaks)
    below, above = _find_range(shuffles, writes, tables, threads)
    scale = _quantile(confidence) / _quantile(_MEASURED_CONFIDENCE)
    scale *= 1.0 if exact else INEXACT
    growth = max(0.0, value - empty)
    low = value - max(_LEAST, growth * below) * scale
    high = value + max(_LEAST, growth * above) * scale
    return Interval(value, max(min(empty, value), min(low, *peaks)), max(high, *peaks))


def find_demand(
    peaks: Sequence[float],
    empty: float,
    confidence: float = _MEASURED_CONFIDENCE,
    shuffles: bool = False,
    writes: bool = False,
    exact: bool = True,
) -> float:
    """Return the memory that a process needs at most to run a job without spilling.

    Examples
    --------
    >>> round(find_demand([300e6, 300e6, 310e6], empty=200e6) / 1e6)
    315
    >>> round(find_demand([300e6, 300e6, 310e6], empty=200e6, shuffles=True) / 1e6)
    330
    """
    value = median(peaks)
    above = _find_range(shuffles, writes)[1] if shuffles or writes else DEMAND
    scale = _quantile(confidence) / _quantile(_MEASURED_CONFIDENCE)
    scale *= 1.0 if exact else INEXACT
    return max(value + max(_LEAST, (value - empty) * above) * scale, *peaks)


def _find_range(
    shuffles: bool, writes: bool, tables: bool = True, threads: int = 1
) -> tuple[float, float]:
    """Return the shares of the growth by which the peak of a job may be lower and higher."""
    if shuffles or writes:
        ranges = [SHUFFLING] * shuffles + [WRITING] * writes
        return max(below for below, _ in ranges), max(above for _, above in ranges)
    if not tables:
        return OTHERS
    return TABLES if threads == 1 else TABLES_OF_THREADS


def find_time_interval(value: float, deviation: float, confidence: float) -> Interval:
    """Return a time with its interval, of a normal distribution of its logarithm.

    Examples
    --------
    >>> found = find_time_interval(10.0, deviation=0.3, confidence=0.9)
    >>> round(found.low, 1), round(found.high, 1)
    (6.1, 16.4)
    """
    factor = math.exp(_quantile(confidence) * deviation)
    return Interval(value, value / factor, value * factor)


def _quantile(confidence: float) -> float:
    """Return how many deviations of a normal distribution an interval has on each side."""
    return NormalDist().inv_cdf((1 + confidence) / 2)
