"""Dashboards of the clusters that the steps of a job have now, in the folder of the job.

The list of clusters is no place for them: a step may have another temporary or home directory than
the supervisor of its job.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from hyperplane.engines.running_system import running_system, started
from hyperplane.folder_entries import find_in

#: The variable that names the folder of the job to its steps.
JOB_FOLDER = "HYPERPLANE_JOB_FOLDER"
_CLUSTERS = "clusters"


def write_dashboard(name: str, dashboard: str) -> None:
    """Write down the dashboard of a cluster of this process, if it is a step of a job.

    Without room on the disk, or where the folder of the job is not here, nothing is written.
    """
    file = _file_of(name)
    if file is None or not dashboard:
        return
    fields = {
        "dashboard": dashboard,
        "pid": os.getpid(),
        "started": started(os.getpid()),
        "system": running_system(),
    }
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(fields))
        draft.replace(file)


def remove_dashboard(name: str) -> None:
    """Remove what :func:`report` has written of a cluster."""
    file = _file_of(name)
    if file is not None:
        with contextlib.suppress(OSError):
            file.unlink()


def read_dashboards(folder: Path) -> list[str]:
    """Dashboards of a job's clusters whose processes run on this machine, the oldest first.

    Parameters
    ----------
    folder : Path
        The folder of the job.
    """
    found = []
    for file in find_in(folder / _CLUSTERS, "*.json"):
        # It may be removed meanwhile, and a step can write there what it likes.
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            fields = json.loads(file.read_text())
            if fields["system"] != running_system():
                continue  # a loopback address of another machine leads to nothing here
            if started(int(fields["pid"])) == fields["started"]:
                found.append((file.stat().st_mtime, str(fields["dashboard"])))
    return [dashboard for _, dashboard in sorted(found)]


def _file_of(name: str) -> Path | None:
    folder = os.environ.get(JOB_FOLDER)
    if not folder:
        return None
    # Steps on several machines write here, and may give their clusters one name.
    system = hashlib.sha256(running_system().encode()).hexdigest()[:8]
    return Path(folder, _CLUSTERS, f"{name}.{system}-{os.getpid()}.json")
