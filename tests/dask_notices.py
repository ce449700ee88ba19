"""What Dask may write as a cluster closes, which says nothing of how well it closed."""

from __future__ import annotations

import re

#: A heartbeat, or the end of a task, that was under way at that moment.
_NOTICES = (
    "Failed to communicate with scheduler during heartbeat",
    "Async instruction for <Task cancelled",
)
_BEGINS = re.compile(r"^(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - distributed\.)", re.MULTILINE)


def without_notices(written: str) -> str:
    """What is left of standard error without these records and their tracebacks."""
    records = _BEGINS.split(written)
    return "".join(each for each in records if not any(text in each for text in _NOTICES))
