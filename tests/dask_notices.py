"""Remove messages that depend on the speed of the machine.

Dask may log some when a cluster closes, and a wait of ten seconds or more has lines of progress.
"""

from __future__ import annotations

import re

#: Messages about a heartbeat or a task that was in progress, and about a worker process that did
#: not end within four seconds on a busy machine.
_NOTICES = (
    "Failed to communicate with scheduler during heartbeat",
    "Async instruction for <Task cancelled",
    "Worker process still alive after ",
)
_RECORD = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - distributed\.[\w.]+ - [A-Z]+ - "
    rf"(?:{'|'.join(map(re.escape, _NOTICES))}).*\n?"
)
#: Line about a wait, such as ``20:48:22 [######------] start (local): 1 of 2 workers, 15 s``.
_PROGRESS = re.compile(r"^\d\d:\d\d:\d\d \[#*-*\] .*\n?", re.MULTILINE)
#: Indented frames, and the line that names the exception.
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+[A-Za-z_][\w.]*(?::.*)?\n?"
)
_CHAINED = re.compile(
    r"\n(?:The above exception was the direct cause of the following exception|"
    r"During handling of the above exception, another exception occurred):\n\n(?=Traceback )"
)


def without_notices(written: str) -> str:
    """Return the text of standard error without these messages and their tracebacks."""
    pieces, position = [], 0
    written = _PROGRESS.sub("", written)
    for record in re.finditer(f"^(?:{_RECORD.pattern})", written, re.MULTILINE):
        pieces.append(written[position : record.start()])
        position = record.end()
        while traceback := _TRACEBACK.match(written, position):
            position = traceback.end()
            if chained := _CHAINED.match(written, position):
                position = chained.end()
            else:
                break
    return "".join([*pieces, written[position:]])
