"""Types of file systems, as the mount table has them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from hyperplane.platforms.local.file_systems import file_system_type, is_on_network

MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/vdb /home/ada/local xfs rw 0 0
ada@b:/ /mnt/two\\040words fuse.sshfs rw 0 0
/dev/vdc /covered ext4 rw 0 0
tmpfs /covered tmpfs rw 0 0
"""


@pytest.fixture(autouse=True)
def mount_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))


@pytest.mark.parametrize("path", ["/home/ada/jobs.db", "/home", "/mnt/two words/jobs.db"])
def test_network_file_systems_are_recognized(path: str) -> None:
    assert is_on_network(Path(path))


@pytest.mark.parametrize(
    "path", ["/var/jobs.db", "/home/ada/local/jobs.db", "/homes/jobs.db", "/mnt/two/jobs.db"]
)
def test_others_are_local(path: str) -> None:
    assert not is_on_network(Path(path))


def test_the_innermost_and_last_mount_counts() -> None:
    assert file_system_type(Path("/home/ada/local/x")) == "xfs"
    assert file_system_type(Path("/covered/x")) == "tmpfs"


def test_without_a_mount_the_type_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "self" / "mounts").write_text("")
    assert file_system_type(Path("/x")) == ""
