"""A nanny reports the memory of a worker process only if that was why it ended."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.guard import memory_reporter
from hyperplane.guard.memory_record import FILE, MemoryFile, MemoryRecord
from hyperplane.guard.memory_report import EXIT_TOPIC, MemoryReport, RunningTask
from hyperplane.guard.memory_reporter import MemoryReporter, PeakSamples

LIMIT = 1000


@pytest.mark.parametrize(
    ("since", "peak"),
    [(0.0, 950), (2.0, 950), (2.5, 300), (4.0, 250), (4.5, 0)],
)
def test_the_peak_is_that_since_a_time(since: float, peak: int) -> None:
    samples = PeakSamples()
    samples.add(1.0, 100, 100)
    samples.add(2.0, 200, 200)
    samples.add(3.0, 300, 950)  # the process used 950 for a moment
    samples.add(4.0, 250, 950)
    assert samples.find_peak(since) == peak


def test_samples_before_the_plugin_are_not_known() -> None:
    samples = PeakSamples()
    samples.add(1.0, 100, 950)
    assert samples.find_peak(0.0) == 100


def test_the_peak_of_an_earlier_task_does_not_count() -> None:
    reporter = MemoryReporter()
    reporter._forget()
    for ago, memory, largest in [(20.0, 950, 950), (10.0, 950, 950), (1.0, 200, 950)]:
        reporter._samples.add(time.time() - ago, memory, largest)
    light = RunningTask("light", "light", 5.0, memory_before=180, inputs=0)
    assert reporter._find_peak(MemoryRecord(running=(light,))) == 200
    later = RunningTask("light", "light", 0.0, memory_before=180, inputs=0)  # after all samples
    assert reporter._find_peak(MemoryRecord(running=(later,))) == 180
    long = RunningTask("long", "long", 15.0, memory_before=180, inputs=0)
    assert reporter._find_peak(MemoryRecord(running=(long, light))) == 950
    assert reporter._find_peak(MemoryRecord(memory=150)) == 200


class FakeScheduler:
    def __init__(self) -> None:
        self.reports: list[MemoryReport] = []
        self.exits: list[int] = []

    async def log_event(self, topic: str, msg: Any) -> None:
        if topic == EXIT_TOPIC:
            self.exits.append(msg["exit_code"])
            return
        self.reports.append(MemoryReport.from_event(msg))


def make_nanny(folder: Path) -> Any:
    """Return a nanny whose worker process is this one, without a timer."""

    async def handle_exit(exit_code: int) -> None:
        pass

    return SimpleNamespace(
        scheduler=FakeScheduler(),
        name="0",
        nthreads=1,
        memory_manager=SimpleNamespace(memory_limit=LIMIT, memory_terminate_fraction=None),
        periodic_callbacks={},
        start_periodic_callbacks=lambda: None,
        status=memory_reporter.nannies.Status.running,
        process=SimpleNamespace(
            process=SimpleNamespace(pid=1),
            worker_address="tcp://w",
            worker_dir=str(folder),
            status=memory_reporter.nannies.Status.running,
        ),
        _on_worker_exit=handle_exit,
    )


def report_exit(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    memories: list[tuple[int, int]],
    exit_code: int = -9,
) -> list[MemoryReport]:
    """Return the reports of a process with these memories and peaks, one a second."""
    nanny = make_nanny(folder)
    reporter = MemoryReporter()
    file = MemoryFile(folder / FILE, create=True)
    clock = iter(float(number) for number in range(100))
    now = SimpleNamespace(time=lambda: next(clock), monotonic=time.monotonic)

    async def run() -> None:
        reporter.setup(nanny)
        monkeypatch.setattr(reporter._counters, "find_cause", lambda: None)
        monkeypatch.setattr(memory_reporter, "time", now)
        for memory, peak in memories:
            monkeypatch.setattr(
                memory_reporter, "read_process_memory", lambda _, m=memory, p=peak: (m, p, 0)
            )
            await nanny.periodic_callbacks["hyperplane-memory"].callback()
        await nanny._on_worker_exit(exit_code)

    asyncio.run(run())
    file.close()
    reports: list[MemoryReport] = nanny.scheduler.reports
    assert nanny.scheduler.exits == ([] if reports else [exit_code])
    return reports


@pytest.mark.parametrize(
    ("memories", "exit_code", "count"),
    [
        pytest.param([(200, 200), (900, 900)], -9, 1, id="full"),
        pytest.param([(200, 200), (700, 700)], -9, 0, id="killed by another program"),
        pytest.param([(900, 900), *[(300, 900)] * 5], -9, 0, id="full long ago"),
        pytest.param([(200, 200), (900, 900)], 137, 0, id="os._exit(137)"),
    ],
)
def test_only_a_full_process_was_killed_for_its_memory(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    memories: list[tuple[int, int]],
    exit_code: int,
    count: int,
) -> None:
    assert len(report_exit(monkeypatch, tmp_path, memories, exit_code)) == count


def test_a_record_that_cannot_be_read_does_not_prevent_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("mmap closed or invalid")

    monkeypatch.setattr(MemoryFile, "read", refuse)
    (report,) = report_exit(monkeypatch, tmp_path, [(900, 900)])
    assert (report.peak, report.running) == (900, ())
