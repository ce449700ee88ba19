"""Types of file systems."""

from __future__ import annotations

from pathlib import Path

import psutil

#: Network file systems, by their names in the mount table.
_NETWORK_FILE_SYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph",
    "glusterfs", "sshfs", "9p", "virtiofs", "afs", "ocfs2", "gfs2", "pvfs2", "panfs", "wekafs",
    "juicefs", "s3fs", "gcsfuse",
}  # fmt: skip


def file_system_type(path: Path) -> str:
    """Return the type of the file system of a path, existing or not; empty if unknown."""
    resolved, best = path.resolve(), ("", "")
    for mount in psutil.disk_partitions(all=True):
        # The last of several mounts on one folder is visible.
        longer = len(mount.mountpoint) >= len(best[0])
        if longer and resolved.is_relative_to(mount.mountpoint):
            best = mount.mountpoint, mount.fstype
    return best[1]


def is_on_network(path: Path) -> bool:
    """Return whether a path, existing or not, is on a network file system; False if unknown."""
    return file_system_type(path).removeprefix("fuse.") in _NETWORK_FILE_SYSTEMS
