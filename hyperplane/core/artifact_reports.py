"""Reports of a step's process about what it has saved, which its supervisor attaches to the job.

A report is a line of JSON in a file of this process, so that no two processes write the same file,
which file systems of several machines do not support.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Variable with the folder for reports of a step; missing where no supervisor reads it.
REPORTS_FOLDER = "HYPERPLANE_JOB_ARTIFACTS"
#: Suffix of files with reports.
SUFFIX = ".jsonl"
#: Kind of the text that a step has set as the output of its job.
OUTPUT = "output"
_TOKEN = secrets.token_hex(4)


def report_artifact(kind: str, **facts: Any) -> None:
    """Report what was saved, if this process is part of a step; never raise for a failure of it.

    Parameters
    ----------
    kind : str
        Kind of the saved object, such as ``"dataframe"``, or ``"output"``.
    **facts
        Values for JSON, such as ``url``, ``format``, ``size``, ``rows`` and ``files``.
    """
    folder = os.environ.get(REPORTS_FOLDER)
    if not folder:
        return
    line = json.dumps({"kind": kind, "created": time.time(), **facts})
    # What was saved is not lost with its report, such as on a full disk.
    with suppress(OSError, ValueError):
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        file = Path(folder, f"{os.getpid()}-{_TOKEN}{SUFFIX}")
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)
