"""Reports of a step's process about what it has saved, which its supervisor attaches to the job.

A report is a line of JSON in a file of this process, so that no two processes write the same file,
which file systems of several machines do not support. In a container whose files its supervisor
cannot read, it is a line of the log, which the supervisor removes from its copy.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Variable with the folder for reports of a step; missing where no supervisor reads it.
REPORTS_FOLDER = "HYPERPLANE_JOB_ARTIFACTS"
#: Variable of a step in a container, whose reports are lines of its log, and their beginning.
SEND_VARIABLE, LINE_MARKER = "HYPERPLANE_JOB_SEND_ARTIFACTS", "hyperplane-artifact:"
#: Suffix of files with reports.
SUFFIX = ".jsonl"
#: Kind of the text that a step has set as the output of its job.
OUTPUT = "output"
_TOKEN = secrets.token_hex(4)
#: Bytes that a pipe takes as one piece, so that no line of another process is within a report.
_WHOLE = 4096
#: Most processes between this one and the program of a container.
_MOST_PARENTS = 50


def report_artifact(kind: str, **facts: Any) -> None:
    """Report what was saved, if this process is part of a step; never raise for a failure of it.

    Parameters
    ----------
    kind : str
        Kind of the saved object, such as ``"dataframe"``, or ``"output"``.
    **facts
        Values for JSON, such as ``url``, ``format``, ``size``, ``rows`` and ``files``. The URL has
        no secrets.
    """
    folder = os.environ.get(REPORTS_FOLDER)
    if not folder and not os.environ.get(SEND_VARIABLE):
        return
    line = json.dumps({"kind": kind, "created": time.time(), **facts})
    # What was saved is not lost with its report, such as on a full disk.
    with suppress(OSError, ValueError):
        if folder:
            _append(Path(folder), line)
        elif not facts.get("local"):  # files of a container end with it
            _send(f"\n{LINE_MARKER}{line}\n".encode())


def _append(folder: Path, line: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{os.getpid()}-{_TOKEN}{SUFFIX}"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def _send(line: bytes) -> None:
    """Write a line to the log of the container: the standard output of its first program.

    That of this process can be something else, such as a pipe to another program, or the output of
    a cell of a notebook.
    """
    if len(line) > _WHOLE:
        return
    program = _find_program()
    if program == os.getpid():
        os.write(1, line)
        return
    try:
        descriptor = os.open(f"/proc/{program}/fd/1", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
    except OSError:  # of another user, or there are no such files
        os.write(2, line)
        return
    try:
        # A file that is opened again has another position, so that lines would be overwritten.
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        os.write(2 if is_file else descriptor, line)
    finally:
        os.close(descriptor)


def _find_program() -> int:
    """Return the process that the container runs: the first ancestor with the variable."""
    process = os.getpid()
    with suppress(OSError, ValueError, IndexError):
        for _ in range(_MOST_PARENTS):
            status = Path(f"/proc/{process}/stat").read_bytes()
            parent = int(status.rpartition(b")")[2].split()[1])
            variables = Path(f"/proc/{parent}/environ").read_bytes().split(b"\0")
            if not any(each.startswith(f"{SEND_VARIABLE}=".encode()) for each in variables):
                break
            process = parent
    return process


def split_reports(lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    r"""Return the lines of a log without reports, and the reports.

    Examples
    --------
    >>> split_reports([b"1", b"", LINE_MARKER.encode() + b'{"kind": "output"}', b"2"])
    ([b'1', b'2'], [b'{"kind": "output"}'])
    """
    marker, kept, reports = LINE_MARKER.encode(), [], []
    for line in lines:
        if not line.startswith(marker):
            kept.append(line)
            continue
        reports.append(line.removeprefix(marker).rstrip(b"\r"))
        if kept and not kept[-1].strip():  # the empty line before it is part of the report
            kept.pop()
    return kept, reports
