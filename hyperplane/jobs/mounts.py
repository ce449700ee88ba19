"""Which file systems other machines have, too."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
#: File systems of networks, as the list of mounts has their names.
_NETWORK_FILE_SYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph",
    "glusterfs", "sshfs", "9p", "virtiofs", "afs", "ocfs2", "gfs2", "pvfs2", "panfs", "wekafs",
    "juicefs", "s3fs", "gcsfuse",
}  # fmt: skip


def is_on_network(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether a path is on a file system that other machines have, too.

    Parameters
    ----------
    path : Path
        The path; it need not exist.
    mounts : Path
        The list of mounts, as Linux has it; without one the answer is no.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    found = "", ""
    for line in lines:
        mount, _, told = line.partition(" - ")
        # Octal for what would end a field.
        place = re.sub(r"\\([0-7]{3})", lambda one: chr(int(one[1], 8)), mount.split(" ")[4])
        if len(place) >= len(found[0]) and path.resolve().is_relative_to(place):
            found = place, told.split(" ")[0]
    return found[1].removeprefix("fuse.") in _NETWORK_FILE_SYSTEMS
