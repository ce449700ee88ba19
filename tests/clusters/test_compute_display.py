"""Progress of calls that wait for a cluster, in a notebook and on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest

import hyperplane
from hyperplane.clusters.dask import compute_display
from hyperplane.clusters.dask.compute_display import ComputeDisplay
from hyperplane.clusters.dask.progress_texts import ComputeFigures
from hyperplane.core import progress
from hyperplane.core.progress_output import LogOutput, TerminalOutput, find_output
from hyperplane.errors import ConfigError

FIGURES = ComputeFigures(
    done=30, active=90, left=75.0, workers=2, paused=1, memory=10**9, limit=4 * 10**9,
    spilled=2 * 10**8, operations=(("read", 20, 20, 0), ("<sum>", 10, 100, 3 * 10**6)), others=2,
)  # fmt: skip
MESSAGE = (0.0, {**vars(FIGURES)})


class Recorded:
    """Output that remembers what was shown."""

    keeps_end = True

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, figures: ComputeFigures, seconds: float) -> None:
        """Remember the tasks that had ended."""
        self.lines.append(f"{figures.done} of {figures.total}")

    def end(self, text: str) -> None:
        """Remember the last text."""
        self.lines.append(re.sub(r"[\d.]+ s\b", "N s", text))


def test_a_line_has_the_parts_that_fit() -> None:
    whole = FIGURES.as_line(5.0, 200)
    assert whole == (
        "[###---------] 30 of 120 tasks, 5.0 s, about 1 min 15 s left; "
        "memory 1 of 4 GB, 200 MB on disk, 1 worker paused; <sum> 10 of 100"
    )
    assert FIGURES.as_line(5.0, 80) == whole.split(";")[0]
    assert all(len(FIGURES.as_line(5.0, width)) <= width for width in range(130))


def test_a_line_of_a_log_has_no_bar() -> None:
    assert FIGURES.as_text(5.0, 90) == ("computing: 30 of 120 tasks, 5.0 s, about 1 min 15 s left")
    assert FIGURES.as_text(5.0, 200).endswith("1 worker paused; <sum> 10 of 100")


def test_a_log_has_lines_at_times_that_become_rarer(capsys: Any) -> None:
    output = LogOutput()
    shown = [*range(10, 3600), *range(3600, 20_000, 10), 10, 11]
    times = []
    for seconds in shown:
        output.show(FIGURES, seconds)
        if capsys.readouterr().err:
            times.append(seconds)
    assert times[:5] == [10, 30, 60, 120, 180]
    assert times[-2] >= 18_000
    assert times[-1] == 10  # another computation
    assert len(times) < 90


def test_the_lines_of_a_log_are_plain(capsys: Any) -> None:
    output = LogOutput()
    output.show(FIGURES, 10.0)
    output.end("120 tasks in 12 s")
    first, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d computing: 30 of 120 tasks, 10 s, .*", first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d 120 tasks in 12 s", last)


@pytest.mark.parametrize(
    ("delay", "log_lines", "is_open", "expected"),
    [
        (2.0, True, True, 10.0),
        (2.0, False, True, None),
        (None, True, True, None),
        (2.0, True, False, None),
    ],
)
def test_a_log_has_progress_unless_it_is_off_or_closed(
    monkeypatch: Any, delay: Any, log_lines: bool, is_open: bool, expected: Any
) -> None:
    stream = io.StringIO()
    if not is_open:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    displays: list[Any] = []

    class Client:
        asynchronous, id = False, "client"

        def subscribe_topic(self, topic: str, handler: Any) -> None:
            displays.append(handler.__self__)

        def log_event(self, topic: str, message: Any) -> None:
            """Do nothing."""

    client: Any = Client()
    compute_display.show_progress_of(client, delay, log_lines)
    assert [each._delay for each in displays] == ([] if expected is None else [expected])
    assert all(isinstance(each._output, LogOutput) for each in displays)


def test_html_has_a_bar_for_each_operation_and_no_markup_of_names() -> None:
    text = FIGURES.as_html(5.0)
    assert re.findall(r"value='(\d+)' max='(\d+)'", text) == [
        ("30", "120"), ("1000000000", "4000000000"), ("20", "20"), ("10", "100"),
    ]  # fmt: skip
    assert "&lt;sum&gt;" in text
    assert "<sum>" not in text
    assert "and 2 operations more" in text
    assert "3 MB of results" in text


def wait_for(condition: Callable[[], Any]) -> None:
    """Wait until the thread that writes has done it."""
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


@pytest.mark.parametrize(
    ("error", "counted", "text"),
    [
        (None, (1200, 0), "1,200 tasks in N s"),
        (None, (1, 0), "1 task in N s"),
        (None, (40, 80), "N s; 40 of 120 tasks have ended"),
        (None, None, "N s; 30 of 120 tasks have ended"),
        (ValueError(), (40, 80), "failed after N s; 30 of 120 tasks had ended"),
        (KeyboardInterrupt(), None, "interrupted after N s; 30 of 120 tasks had ended"),
    ],
)
def test_progress_is_shown_until_the_call_ends(error: Any, counted: Any, text: str) -> None:
    output = Recorded()
    display = ComputeDisplay(output, 0.0, lambda: counted)
    display.on_message(MESSAGE)  # nothing waits
    display.begin()
    display.begin()  # a call within the call
    display.end(1, None)
    display.on_message(MESSAGE)
    wait_for(lambda: output.lines)
    display.end(0, error)
    display.on_message(MESSAGE)
    display.draw()
    assert output.lines == ["30 of 120", text]


def test_a_call_that_ends_while_its_progress_is_first_drawn_replaces_it() -> None:
    class Slow(Recorded):
        def show(self, figures: ComputeFigures, seconds: float) -> None:
            super().show(figures, seconds)
            released.wait(60)

    released = threading.Event()
    output = Slow()
    display = ComputeDisplay(output, 0.0, lambda: (120, 0))
    display.begin()
    display.on_message(MESSAGE)
    wait_for(lambda: output.lines)
    ending = threading.Thread(target=display.end, args=(0, None))
    ending.start()
    wait_for(lambda: display.depth == 0)
    released.set()
    ending.join()
    assert output.lines == ["30 of 120", "120 tasks in N s"]


def test_a_call_after_an_interrupted_one_is_the_outermost() -> None:
    output = Recorded()
    display = ComputeDisplay(output, 0.0, lambda: None)
    display.begin()  # Ctrl-C before its call
    display.end(0, KeyboardInterrupt())
    display.on_message(MESSAGE)
    display.draw()
    assert output.lines == []
    assert display.depth == 0


class Closed(Recorded):
    """Output of a terminal that was closed."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self._methods = methods

    def show(self, figures: ComputeFigures, seconds: float) -> None:
        """Fail, or remember."""
        if "show" in self._methods:
            raise OSError(5, "Input/output error")
        super().show(figures, seconds)

    def end(self, text: str) -> None:
        """Fail."""
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("methods", [("show", "end"), ("end",)])
def test_an_output_that_fails_is_no_error_of_the_call(methods: Any) -> None:
    display = ComputeDisplay(Closed(*methods), 0.0, lambda: None)
    for _ in range(2):
        display.begin()
        display.on_message(MESSAGE)
        display.draw()
        display.end(0, None)
    assert display.depth == 0


def test_a_terminal_that_takes_no_output_does_not_stop_the_call(monkeypatch: Any) -> None:
    class Stopped(Recorded):
        def show(self, figures: ComputeFigures, seconds: float) -> None:
            super().show(figures, seconds)
            released.wait(60)

    released = threading.Event()
    monkeypatch.setattr(compute_display, "_END_SECONDS", 0.05)
    output = Stopped()
    display = ComputeDisplay(output, 0.0, lambda: None)
    display.begin()
    display.on_message(MESSAGE)
    wait_for(lambda: output.lines)
    display.on_message(MESSAGE)  # does not wait
    display.end(0, None)
    released.set()
    assert output.lines == ["30 of 120"]


def test_nothing_is_shown_before_the_delay_or_beside_another_bar(monkeypatch: Any) -> None:
    output = Recorded()
    slow = ComputeDisplay(output, 60.0, lambda: None)
    slow.begin()
    slow.on_message(MESSAGE)
    slow.draw()
    slow.end(0, None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    display = ComputeDisplay(output, 0.0, lambda: None)
    display.begin()
    with progress.show_progress("saving", 3):
        display.on_message(MESSAGE)
        display.draw()
    display.end(0, None)
    assert output.lines == []


def test_figures_of_another_version_and_names_with_control_characters() -> None:
    message = {**vars(FIGURES), "operations": [("\x1b[31mred\n", 1, 2, 0)], "later": 1}
    figures = ComputeFigures.of_message(message)
    assert figures.operations == (("[31mred", 1, 2, 0),)


def test_a_wrong_delay_is_refused_before_a_cluster_starts() -> None:
    with (
        dask.config.set({"hyperplane.progress.delay": "soon"}),
        pytest.raises(ConfigError, match=r"hyperplane\.progress\.delay"),
    ):
        hyperplane.start(
            hyperplane.plan_cluster(1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, engine="local")
        )


def test_there_is_an_output_only_where_it_can_be_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert find_output() is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(find_output(), TerminalOutput)


PROGRAM = """
import time
import dask
import hyperplane

def work(number):
    time.sleep(0.2)
    return number

if __name__ == "__main__":
    dask.config.set({"hyperplane.progress.delay": DELAY})
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5
    )
    print("total", sum(client.gather(client.map(work, range(12)))))
    client.close()
    cluster.close()
"""


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("delay", ["0.3", "None"])
def test_a_terminal_shows_one_line_and_clears_it(tmp_path: Path, delay: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("DELAY", delay))
    parent, child = pty.openpty()
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=child, text=True
    ) as process:
        os.close(child)
        errors = b""
        while chunk := _read(parent):
            errors += chunk
        output = process.communicate(timeout=60)[0]
    os.close(parent)
    assert process.returncode == 0, errors
    assert "total 66" in output
    assert "tasks" not in output
    lines = errors.decode().split("\r\x1b[2K")
    shown = [line for line in lines if re.match(r"\[[#-]+\] \d+ of 12 tasks", line)]
    if delay == "None":
        assert not shown
    else:
        assert shown
        assert not lines[-1].startswith("[")


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("delay", ["0.06", "None"])
def test_a_log_has_plain_lines(tmp_path: Path, delay: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("DELAY", delay))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=True, timeout=120
    )
    assert "total 66" in done.stdout
    lines = [line.split(" ", 1)[1] for line in done.stderr.splitlines() if "task" in line]
    if delay == "None":
        assert lines == []
    else:
        assert re.match(r"computing: \d+ of 12 tasks, ", lines[0])
        # The second one if the scheduler does not say the number in time.
        assert re.match(r"12 tasks in [\d.]+ s|[\d.]+ s; \d+ of 12 tasks have ended", lines[-1])
        assert not any("[" in line or "\r" in line for line in lines)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the program has ended
        return b""
