"""What Dask may write as a cluster closes, which says nothing of how well it closed."""

from __future__ import annotations

import re

#: A heartbeat, or the end of a task, that was under way at that moment; and a worker process that
#: the machine did not let run for four seconds.
_NOTICES = (
    "Failed to communicate with scheduler during heartbeat",
    "Async instruction for <Task cancelled",
    "Worker process still alive after ",
)
_RECORD = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - distributed\.[\w.]+ - [A-Z]+ - "
    rf"(?:{'|'.join(map(re.escape, _NOTICES))}).*\n?"
)
#: Calls, which are indented, and the line that names the error.
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+[A-Za-z_][\w.]*(?::.*)?\n?"
)
_CHAINED = re.compile(
    r"\n(?:The above exception was the direct cause of the following exception|"
    r"During handling of the above exception, another exception occurred):\n\n(?=Traceback )"
)


def without_notices(written: str) -> str:
    """Return standard error without these records and their tracebacks; all else is kept."""
    kept, position = [], 0
    for record in re.finditer(f"^(?:{_RECORD.pattern})", written, re.MULTILINE):
        kept.append(written[position : record.start()])
        position = record.end()
        while traceback := _TRACEBACK.match(written, position):
            position = traceback.end()
            if chained := _CHAINED.match(written, position):
                position = chained.end()
            else:
                break
    return "".join([*kept, written[position:]])
