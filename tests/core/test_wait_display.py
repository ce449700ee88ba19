"""What a call shows that waits for a cluster or a job."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hyperplane.core import progress_output, wait_display
from hyperplane.core.progress import has_open_bar, show_progress
from hyperplane.core.progress_output import (
    NotebookOutput,
    PlainOutput,
    find_output,
)  # fmt: skip
from hyperplane.core.wait_display import WaitDisplay, WaitStatus, show_wait

STATUS = WaitStatus("job nightly #12", "steps done", 2, 5, "running: transform")


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        """Return that it is."""
        return True

    def fileno(self) -> int:
        """Return the descriptor whose size is asked for."""
        return 2


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_display, "INTERVAL", 0.01)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((100, 24)))


def test_a_line_has_the_count_the_time_and_what_happens_now() -> None:
    line = STATUS.as_line(75.0, 200)
    assert (
        line == "[####--------] job nightly #12: 2 of 5 steps done, 1 min 15 s; running: transform"
    )
    assert all(len(STATUS.as_line(75.0, width)) <= width for width in range(100))
    assert STATUS.as_line(75.0, 79) == line.partition("] ")[2]  # in place of the bar
    assert WaitStatus("start").as_line(3.0, 80) == "start: 3.0 s"
    assert WaitStatus("start", "workers", 9, 5).as_line(3.0, 80).startswith("[############] ")


def test_names_and_messages_of_others_are_no_markup_and_no_control_characters() -> None:
    status = WaitStatus("job \x1b[2J<b>", "steps", 1, 2, "a\nb")
    assert status.as_line(1.0, 80).endswith("job [2J<b>: 1 of 2 steps, 1.0 s; ab")
    assert "<progress value='1' max='2'" in status.as_html(1.0)
    assert "&lt;b&gt;" in status.as_html(1.0)


def test_a_terminal_has_one_line_that_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_wait(STATUS, 0.0) as display:
        assert display is not None
        wait_for(lambda: "transform" in stream.getvalue())
        assert has_open_bar()  # calls of Dask show nothing meanwhile
        display.status = WaitStatus("job nightly #12", "steps done", 3, 5, "running: load")
        wait_for(lambda: "running: load" in stream.getvalue())
    assert not has_open_bar()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_nothing_is_written_before_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_wait(STATUS, 60.0):
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_without_a_terminal_there_is_a_line_for_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress_output, "_LEAST_PAUSE", 0.0)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_wait(STATUS, 0.0) as display:
        assert display is not None
        wait_for(lambda: "transform" in stream.getvalue())
        time.sleep(0.1)
        display.status = WaitStatus("job nightly #12", "steps done", 3, 5, "running: load")
        wait_for(lambda: "running: load" in stream.getvalue())
        display.outcome = "failed"
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "2 of 5 steps done" in lines[0]
    assert "job nightly #12: failed after " in lines[2]


def test_a_long_wait_without_a_change_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_output, "_LEAST_PAUSE", 0.0)
    monkeypatch.setattr(progress_output, "_MOST_PAUSE", 0.05)
    output = PlainOutput(io.StringIO())
    output.show(STATUS, 1.0)
    time.sleep(0.06)
    output.show(STATUS, 2.0)
    assert len(output._stream.getvalue().splitlines()) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_ends_the_display(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    def fail() -> None:
        with show_wait(STATUS, 0.0):
            wait_for(stream.getvalue)
            raise error

    with pytest.raises(error):
        fail()
    word = "failed" if error is ValueError else "interrupted"
    assert f"{word} after" in stream.getvalue().splitlines()[-1]


def test_nothing_is_shown_where_it_is_off_or_in_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = []

    def use(delay: float | None) -> None:
        with show_wait(STATUS, delay) as display:
            shown.append(display)

    use(None)
    thread = threading.Thread(target=use, args=(0.0,))
    thread.start()
    thread.join()
    monkeypatch.setattr(sys, "stderr", None)
    use(0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with show_wait(STATUS, 0.0, log_lines=False) as display:
        shown.append(display)
    assert shown == [None, None, None, None]


def closed_stream() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream", [None, object(), closed_stream()], ids=["none", "bare", "closed"]
)
def test_a_standard_error_that_cannot_tell_what_it_is_shows_nothing(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    assert find_output() is None
    with show_wait(STATUS, 0.0) as display:
        assert display is None
    with show_progress("label", 3) as advance:
        advance()


def test_a_call_goes_on_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with show_wait(STATUS, 0.0) as display:
            assert display is not None
    assert stream.getvalue() == ""


class Slow:
    """Output whose drawing takes until it is released, and may then fail."""

    keeps_end = False

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.called, self.released = threading.Event(), threading.Event()
        self.lines: list[str] = []

    def show(self, figures: Any, seconds: float) -> None:
        """Draw, slowly."""
        self.called.set()
        assert self.released.wait(30)
        if self.error is not None:
            raise self.error
        self.lines.append("drawn")

    def end(self, text: str) -> None:
        """Replace what is drawn."""
        self.lines.append(f"end: {text.partition(' after')[0]}")
        if self.error is not None:
            raise self.error


def test_the_end_during_the_first_drawing_clears_the_line() -> None:
    output = Slow()
    display = WaitDisplay(output, 0.0, STATUS)
    display.start()
    assert output.called.wait(30)
    threading.Timer(0.05, output.released.set).start()
    display.end("done")
    display._thread.join(30)
    assert output.lines == ["drawn", "end: job nightly #12: done"]


def test_an_output_that_blocks_does_not_stop_the_call_and_is_cleared_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wait_display, "_END_SECONDS", 0.05)
    output = Slow()
    display = WaitDisplay(output, 0.0, STATUS)
    display.start()
    assert output.called.wait(30)
    display.end("done")  # does not wait for it
    assert output.lines == []
    output.released.set()
    display._thread.join(30)
    assert not display._thread.is_alive()
    display.end("done")
    assert output.lines == ["drawn", "end: job nightly #12: done"]


def test_an_output_that_fails_is_no_error_of_the_call() -> None:
    output = Slow(OSError(5, "Input/output error"))
    display = WaitDisplay(output, 0.0, STATUS)
    display.start()
    output.released.set()
    display._thread.join(30)
    assert not display._thread.is_alive()
    display.end("done")
    assert output.lines == ["end: job nightly #12: done"]


def test_an_error_may_have_another_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    def wait() -> None:
        with show_wait(STATUS, 0.0) as display:
            assert display is not None
            display.error_outcome = "still in progress"
            wait_for(stream.getvalue)
            raise TimeoutError

    with pytest.raises(TimeoutError):
        wait()
    assert "job nightly #12: still in progress after" in stream.getvalue().splitlines()[-1]
    assert "failed" not in stream.getvalue()


def test_a_notebook_has_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, Any]] = []

    class Handle:
        def update(self, data: Any, raw: bool) -> None:
            shown.append(("update", data))

    def display(data: Any, raw: bool, display_id: bool) -> Handle:
        shown.append(("new", data))
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)

    class Shell:
        execution_count = 3

    output = NotebookOutput(Shell())
    output.show(STATUS, 1.0)
    output.show(STATUS, 2.0)
    output.end("job nightly #12: done after 3 s")
    assert [kind for kind, _ in shown] == ["new", "update", "update"]
    assert "<progress" in shown[1][1]["text/html"]
    assert shown[-1][1]["text/plain"] == "job nightly #12: done after 3 s"
    waiting = WaitDisplay(output, 0.0, STATUS)
    waiting._is_shown = True
    waiting.end("")  # not an empty output
    assert shown[-1][1]["text/plain"].startswith("job nightly #12: done after ")
