"""Limits of control groups of both versions, at every level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hyperplane.platforms.local import machine

MB = 2**20


def tree(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """Write the relevant files of /proc and /sys below a root folder."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_without_control_groups_it_is_the_machine(tmp_path: Path) -> None:
    assert machine.cores(tmp_path) == len(os.sched_getaffinity(0))
    assert 0 < machine.free_ram(tmp_path) <= psutil.virtual_memory().total


def test_affinity_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 7})
    assert machine.cores(tmp_path) == 3


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({"a/b/cpu.max": "150000 100000"}, 1),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
        ({"a/b/cpu.max": "600000 100000", "cpu.max": "250000 100000"}, 2),
        ({"a/b/cpu.max": "50000 100000"}, 1),
        ({"a/b/cpu.max": "max 100000"}, 8),
    ],
)
def test_cpu_quota_of_version_2_at_every_level(
    limits: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert machine.cores(tree(tmp_path, "0::/a/b\n", limits)) == cores


def test_cpu_quota_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    files = {
        "cpu/job/cpu.cfs_quota_us": "200000",
        "cpu/job/cpu.cfs_period_us": "100000",
        "cpu/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_period_us": "100000",
    }
    assert machine.cores(tree(tmp_path, "3:cpu,cpuacct:/job\n", files)) == 2


def test_memory_of_version_2_leaves_out_what_can_be_reclaimed(tmp_path: Path) -> None:
    files = {
        "a/memory.max": str(400 * MB),
        "a/memory.current": str(300 * MB),
        "a/memory.stat": f"anon {100 * MB}\ninactive_file {150 * MB}\n",
        "a/b/memory.max": "max",
        "a/b/memory.current": str(10 * MB),
    }
    assert machine.free_ram(tree(tmp_path, "0::/a/b\n", files)) == 250 * MB


def test_memory_of_version_1_above_the_own_group(tmp_path: Path) -> None:
    files = {
        "memory/job/memory.limit_in_bytes": str(500 * MB),
        "memory/job/memory.usage_in_bytes": str(200 * MB),
        "memory/job/memory.stat": f"total_inactive_file {50 * MB}\n",
        "memory/job/step/memory.limit_in_bytes": "9223372036854771712",
        "memory/job/step/memory.usage_in_bytes": "0",
    }
    assert machine.free_ram(tree(tmp_path, "4:memory:/job/step\n", files)) == 350 * MB


def test_a_full_group_has_no_free_memory(tmp_path: Path) -> None:
    files = {"memory.max": str(100 * MB), "memory.current": str(120 * MB)}
    assert machine.free_ram(tree(tmp_path, "0::/\n", files)) == 0


def test_a_path_of_the_host_falls_back_to_what_exists(tmp_path: Path) -> None:
    files = {"memory.max": str(100 * MB), "memory.current": str(40 * MB)}
    assert machine.free_ram(tree(tmp_path, "0::/host/only/path\n", files)) == 60 * MB


def _own_memory_group() -> Path | None:
    """Return a folder for a control group of version 1, if this user can create one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            folder = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            return folder if os.access(folder, os.W_OK) and os.geteuid() == 0 else None
    return None


@pytest.mark.process
@pytest.mark.skipif(_own_memory_group() is None, reason="needs root and control groups version 1")
def test_a_real_group_of_400_mib() -> None:
    parent = _own_memory_group()
    assert parent is not None
    group = parent / f"hyperplane-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(400 * MB))
        inner = group / "inner"
        inner.mkdir()
        look = (
            f"import os, pathlib\n"
            f"pathlib.Path({str(inner / 'cgroup.procs')!r}).write_text(str(os.getpid()))\n"
            "from hyperplane.platforms.local import machine\nprint(machine.free_ram())"
        )
        done = subprocess.run(
            [sys.executable, "-c", look], capture_output=True, text=True, check=True
        )
        assert 300 * MB < int(done.stdout) <= 400 * MB
        inner.rmdir()
    finally:
        group.rmdir()


def test_the_whole_memory_is_that_of_the_machine_or_of_the_smallest_group(tmp_path: Path) -> None:
    files = {"memory.max": str(400 * MB), "memory.current": str(300 * MB)}
    assert machine.total_ram(tree(tmp_path / "a", "0::/\n", files)) == 400 * MB
    assert machine.total_ram(tmp_path / "nothing") == psutil.virtual_memory().total
