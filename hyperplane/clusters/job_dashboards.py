"""Files in a job's folder with the dashboards of the clusters that its steps run.

The supervisor of a job cannot always read the records of clusters, because a step may have another
temporary or home directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from hyperplane.core.folder_entries import find_in
from hyperplane.platforms.local.process_identity import running_system, start_time

#: Environment variable that gives steps the folder of their job.
JOB_FOLDER = "HYPERPLANE_JOB_FOLDER"
_CLUSTERS = "clusters"


def write_dashboard(name: str, dashboard: str) -> None:
    """Write the dashboard of a cluster to the job's folder, if this process is a step of a job.

    Errors are ignored: the disk may be full, and the folder may not exist on this machine.
    """
    file = _dashboard_file(name)
    if file is None or not dashboard:
        return
    fields = {
        "dashboard": dashboard,
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
        "system": running_system(),
    }
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(fields))
        draft.replace(file)


def remove_dashboard(name: str) -> None:
    """Remove the file that :func:`write_dashboard` has written for a cluster."""
    file = _dashboard_file(name)
    if file is not None:
        with contextlib.suppress(OSError):
            file.unlink()


def read_dashboards(folder: Path) -> list[str]:
    """Return the dashboards of clusters of the job in `folder`, oldest first.

    Only clusters whose owning process still runs on this machine are included.
    """
    dashboards = []
    for file in find_in(folder / _CLUSTERS, "*.json"):
        # The file may be removed meanwhile, and steps can write arbitrary files there.
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            fields = json.loads(file.read_text())
            if fields["system"] != running_system():
                continue  # a loopback address of another machine cannot be opened on this one
            if start_time(int(fields["pid"])) == fields["started"]:
                dashboards.append((file.stat().st_mtime, str(fields["dashboard"])))
    return [dashboard for _, dashboard in sorted(dashboards)]


def _dashboard_file(name: str) -> Path | None:
    folder = os.environ.get(JOB_FOLDER)
    if not folder:
        return None
    # Steps on several machines write here and may use the same cluster name.
    system = hashlib.sha256(running_system().encode()).hexdigest()[:8]
    return Path(folder, _CLUSTERS, f"{name}.{system}-{os.getpid()}.json")
