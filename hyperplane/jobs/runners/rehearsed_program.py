"""Limit a task of a rehearsal, and replace this process by the program of its container.

The rehearsal executes this file by its path, without the package: it imports only the standard
library. The objects of the bucket are files here.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

#: Variable of the same name in ``measured_program.py``: the program ends with what measures it.
_END_WITH_PARENT = "HYPERPLANE_JOB_END_WITH_PARENT"
#: Request of prctl for the signal after the end of the parent.
_PARENT_DEATH_SIGNAL = 1


def run(settings: dict[str, Any]) -> None:
    """Run the task of a manifest with the limits of the settings.

    ``procs`` is the file of a control group, ``data`` a limit of the data of each process in bytes,
    and ``network`` the program that leaves the network; None for what is not limited.
    """
    if settings["procs"] is not None:
        Path(settings["procs"]).write_text("0")
    if settings["network"] is not None:
        runpy.run_path(settings["network"])["leave_network"]()
    # Last, because a change of namespaces may reset it.
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != settings["parent"]:
        sys.exit("the rehearsal has ended")
    if settings["data"] is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = settings["data"] if hard == resource.RLIM_INFINITY else min(settings["data"], hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    os.environ[_END_WITH_PARENT] = "1"
    objects = Path(settings["objects"])
    manifest = json.loads(Path(settings["manifest"]).read_bytes())
    run_task = runpy.run_path(settings["program"])["run_task"]
    run_task(manifest, lambda key: (objects / key).read_bytes(), settings["folder"])


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
