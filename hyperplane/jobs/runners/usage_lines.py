"""Lines in the logs of containers with what the program of a step took."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hyperplane.jobs.runners.measured_program import USAGE_MARKER

_MARKER = USAGE_MARKER.encode()
#: Peak, CPU seconds, cores, bytes read and written, as ``UsageMeter.describe`` writes them.
_FIGURES = re.compile(rb"(\d{1,18}) (\d{1,12}\.\d{3}) (\d{1,6}\.\d{3}) (\d{1,18}) (\d{1,18})")
#: What a runner writes before the lines of one of several machines, such as its name.
_MACHINE = re.compile(rb"(?:[\w -]{1,60} \| )?")


def split_usage(log: bytes) -> tuple[bytes, list[bytes]]:
    r"""Return a log without the lines that have figures, and these figures.

    Examples
    --------
    >>> split_usage(b"1\n\nhyperplane-usage:4096 0.250 1.000 10 20\n2\n")
    (b'1\n2\n', [b'4096 0.250 1.000 10 20'])
    """
    parts, figures, start = [], [], 0
    while (at := log.find(_MARKER, start)) >= 0:
        begin = max(start, log.rfind(b"\n", start, at) + 1)
        end = log.find(b"\n", at) + 1 or len(log)
        machine, text = log[begin:at], log[at + len(_MARKER) : end].strip()
        if _FIGURES.fullmatch(text) and _MACHINE.fullmatch(machine):
            figures.append(text)
            parts.append(_without_empty_line(log[start:begin], machine))
        else:
            parts.append(log[start:end])
        start = end
    return b"".join((*parts, log[start:])), figures


def _without_empty_line(text: bytes, machine: bytes) -> bytes:
    """Return a text without the empty line at its end, which is printed before the figures."""
    line = text[text.rfind(b"\n", 0, -1) + 1 :]
    return text[: -len(line)] if line and line.strip() == machine.strip() else text


def sum_usage(figures: Sequence[bytes]) -> str:
    """Return the figures of a step that ran on some machines: the largest one, and the sums.

    The peak of memory and the cores are those of the machine that took most.
    """
    found = [match.groups() for each in figures if (match := _FIGURES.fullmatch(each))]
    peaks, seconds, cores, read, written = zip(*found, strict=True)
    largest = f"{max(map(int, peaks))} {sum(map(float, seconds)):.3f} {max(map(float, cores)):.3f}"
    return f"{largest} {sum(map(int, read))} {sum(map(int, written))}"
