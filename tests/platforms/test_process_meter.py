"""Measurements of the program of a step."""

from __future__ import annotations

import pytest

from hyperplane.platforms.local import process_meter
from hyperplane.platforms.local.process_meter import UsageMeter

PAGE = 4096
TICK = 100


class ProcessFiles:
    """Files of processes below /proc, and the clock, in place of those of the system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        #: By process: start, own CPU seconds and those of ended children, and its children.
        self.processes: dict[int, tuple[float, float, float, list[int]]] = {}
        monkeypatch.setattr(process_meter, "_read", self.read)
        monkeypatch.setattr(process_meter.os, "listdir", self.list_threads)
        monkeypatch.setattr(
            process_meter.os, "sysconf", {"SC_PAGE_SIZE": PAGE, "SC_CLK_TCK": TICK}.get
        )
        monkeypatch.setattr(process_meter.time, "clock_gettime", lambda clock: self.now)

    def list_threads(self, path: str) -> list[str]:
        pid = path.split("/")[2]
        return [f"{pid}9", pid]

    def read(self, path: str) -> bytes:
        _, _, pid, *rest = path.split("/")
        if int(pid) not in self.processes:
            raise ProcessLookupError
        started, own, ended, children = self.processes[int(pid)]
        if rest == ["statm"]:
            return b"900 300 100 1 0 1 0"
        if rest == ["stat"]:
            times = f"{own * TICK:.0f} 0 {ended * TICK:.0f} 0"
            return f"{pid} (a b) S {'0 ' * 10}{times} 0 0 1 0 {started * TICK:.0f} 0".encode()
        if rest[1] != pid:  # a thread besides the first one has ended meanwhile
            raise ProcessLookupError
        return " ".join(map(str, children)).encode()


@pytest.fixture
def files(monkeypatch):
    return ProcessFiles(monkeypatch)


def measure(meter: UsageMeter, files: ProcessFiles, **processes) -> float:
    """Return the cores of the next second, in which processes get these figures."""
    files.now += 1
    files.processes = {int(name[1:]): figures for name, figures in processes.items()}
    meter._cores = 0.0
    meter.measure_if_due()
    return round(meter._cores, 3)


def test_a_thread_that_ends_meanwhile_leaves_the_figures_of_its_process(files):
    meter = UsageMeter(1)
    assert measure(meter, files, p1=(999.99, 0.5, 0, [2]), p2=(1000.5, 0.25, 0, [])) == 0.75
    assert meter._peak == (2 * 200 + 100) * PAGE


def test_a_process_that_was_not_found_once_is_counted_from_then_on(files):
    meter = UsageMeter(1)
    measure(meter, files, p1=(999, 0, 0, [2]), p2=(999, 50, 0, []))
    assert measure(meter, files, p1=(999, 0.5, 0, [])) == 0.5
    assert measure(meter, files, p1=(999, 1, 0, [2]), p2=(999, 52, 0, [])) == 0.5
    assert measure(meter, files, p1=(999, 1.5, 0, [2]), p2=(999, 53, 0, [])) == 1.5


def test_the_time_of_a_process_that_has_ended_counts_once(files):
    meter = UsageMeter(1)
    measure(meter, files, p1=(999, 0, 0, [2]), p2=(999, 50, 0, []))
    assert measure(meter, files, p1=(999, 0, 50.5, [])) == 0.5
    # The parent is measured before it has waited for the next one.
    assert measure(meter, files, p1=(999, 0, 50.5, [3]), p3=(1002.5, 0.5, 0, [])) == 0.5
    assert measure(meter, files, p1=(999, 0.25, 50.5, [3])) == 0.25
    assert measure(meter, files, p1=(999, 0.5, 51.25, [])) == 0.5


def test_a_number_that_is_used_again_is_another_process(files):
    meter = UsageMeter(1)
    measure(meter, files, p1=(999, 0, 0, [2]), p2=(999, 50, 0, []))
    assert measure(meter, files, p1=(999, 0, 50, [2]), p2=(1001.5, 0.5, 0, [])) == 0.5
