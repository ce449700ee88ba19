"""Counters of the kernel are found in both versions of control groups."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from hyperplane.guard import oom_counters
from hyperplane.guard.oom_counters import OomCounters, find_group_files


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/user.slice/job\n", "user.slice/job/memory.events"),
        ("0::/of/the/host\n", "memory.events"),
        ("4:memory:/slurm/job\n0::/\n", "memory/slurm/job/memory.oom_control"),
        ("4:cpu,memory:/x\n", "memory/memory.oom_control"),
    ],
)
def test_files_of_control_groups_are_found(tmp_path: Path, groups: str, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("oom_kill 0\n")
    assert path in find_group_files(groups, tmp_path)


def test_groups_around_that_of_the_process_do_not_count(tmp_path: Path) -> None:
    for folder in ("", "user.slice", "user.slice/job"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "memory.events").write_text("oom_kill 0\n")
    own = tmp_path / "user.slice" / "job" / "memory.events"
    assert find_group_files("0::/user.slice/job\n", tmp_path) == [own]


def make_counters(monkeypatch: pytest.MonkeyPatch, machine: Path, *files: Path) -> OomCounters:
    for file in (machine, *files):
        file.write_text("low 0\noom_kill 1\n")
    monkeypatch.setattr(oom_counters, "_MACHINE", machine)
    monkeypatch.setattr(oom_counters, "find_group_files", lambda _: list(files))
    return OomCounters()


def test_a_counter_that_grows_is_a_cause_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, small, large = (tmp_path / name for name in ("machine", "small", "large"))
    counters = make_counters(monkeypatch, machine, small, large)
    large.write_text("oom_kill 9\n")
    assert counters.find_cause() == "cgroup"
    assert counters.find_cause() is None
    small.write_text("oom_kill 2\n")  # the count of another group is larger
    assert counters.find_cause() == "cgroup"
    machine.write_text("oom_kill 2\n")
    assert counters.find_cause() == "kernel"
    assert counters.find_cause() is None


def test_counters_are_read_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = make_counters(monkeypatch, tmp_path / "machine", tmp_path / "group")
    now = counters._read_at
    monkeypatch.setattr(oom_counters, "time", SimpleNamespace(monotonic=lambda: now))
    (tmp_path / "group").write_text("oom_kill 2\n")
    now += 0.9
    counters.refresh()
    assert counters.find_cause() == "cgroup"
    (tmp_path / "group").write_text("oom_kill 3\n")
    now += 1.1
    counters.refresh()
    assert counters.find_cause() is None
