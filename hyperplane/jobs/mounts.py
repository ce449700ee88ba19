"""Detect network file systems."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
#: Network file systems, by their names in the mount table.
_NETWORK_FILE_SYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph",
    "glusterfs", "sshfs", "9p", "virtiofs", "afs", "ocfs2", "gfs2", "pvfs2", "panfs", "wekafs",
    "juicefs", "s3fs", "gcsfuse",
}  # fmt: skip


def is_on_network(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether a path, existing or not, is on a network file system.

    ``mounts`` is the mount table as Linux has it; without one the answer is no.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    best = "", ""
    for line in lines:
        mount, _, type_and_source = line.partition(" - ")
        # Characters that would end a field are octal escapes.
        mount_point = re.sub(r"\\([0-7]{3})", lambda one: chr(int(one[1], 8)), mount.split(" ")[4])
        if len(mount_point) >= len(best[0]) and path.resolve().is_relative_to(mount_point):
            best = mount_point, type_and_source.split(" ")[0]
    return best[1].removeprefix("fuse.") in _NETWORK_FILE_SYSTEMS
