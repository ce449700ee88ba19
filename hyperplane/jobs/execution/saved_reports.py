"""Read what the processes of an attempt have reported as saved."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hyperplane.core.artifact_reports import OUTPUT, SUFFIX
from hyperplane.jobs.artifact_files import open_regular
from hyperplane.jobs.store.artifact_records import LARGEST_NUMBER, LONGEST_URL

#: Most files with reports, and most bytes of one: a report has about 300.
_MOST_REPORTS, _LARGEST_REPORT = 1000, 2_000_000
#: Largest index of a shard, which is a smaller number there.
_LARGEST_SHARD = 2**31 - 1


def read_reports(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the valid reports in a folder, in the order in which they were made."""
    reports = []
    with suppress(OSError):
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
        root = os.path.realpath(folder)
        for name in names[:_MOST_REPORTS]:
            with suppress(OSError, ValueError), open_regular(f"{root}/{name}") as opened:
                for line in opened.read(_LARGEST_REPORT).splitlines():
                    # A step can write anything there, also JSON that is nested too deeply.
                    with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
                        reports.append(_check_report(json.loads(line)))
    yield from sorted(reports, key=lambda report: report["created"])


def _check_report(report: Any) -> dict[str, Any]:
    """Return the known fields of a report.

    Raises
    ------
    ValueError, TypeError, KeyError, OverflowError
        If it is none.
    """
    if not isinstance(report, dict):
        raise TypeError("no object")
    texts = {name: report.get(name, "") for name in ("kind", "url", "format", "digest")}
    numbers = {name: report.get(name) for name in ("size", "rows", "files", "shard")}
    created = float(report["created"])
    for text in texts.values():
        if not isinstance(text, str) or len(text) > LONGEST_URL:
            raise ValueError("no text of this length")
    for name, number in numbers.items():
        largest = _LARGEST_SHARD if name == "shard" else LARGEST_NUMBER
        if number is not None and not (isinstance(number, int) and 0 <= number <= largest):
            raise ValueError("no such number")
    if not math.isfinite(created) or not (texts["url"] or texts["kind"] == OUTPUT):
        raise ValueError("no time or address")
    flags = {name: report.get(name) is True for name in ("folder", "local")}
    return {**texts, **numbers, **flags, "created": created}
