"""Outputs of jobs in a notebook, which are updated until the job ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.jobs import live_output
from hyperplane.jobs.live_output import JobOutput, JobState, OutputUpdater


class Recorded:
    """Output that remembers what was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def show(self, plain: str, markup: str) -> None:
        """Remember the HTML."""
        assert plain
        self.shown.append(markup)


class Events:
    """Events of a shell."""

    def __init__(self) -> None:
        self.callbacks: list[tuple[str, Callable[..., Any]]] = []

    def register(self, event: str, callback: Callable[..., Any]) -> None:
        """Remember a callback."""
        self.callbacks.append((event, callback))


@pytest.fixture
def shell() -> Any:
    return SimpleNamespace(events=Events())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_output, "INTERVAL", 0.01)
    monkeypatch.setattr(live_output, "_MAX_SHARE", 1.0)
    monkeypatch.setattr(live_output, "CellOutput", Recorded)


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def make_output(texts: list[Any], cell: str = "") -> tuple[JobOutput, list[str]]:
    """Return an output of a job that has these states one after the other, and what it shows."""

    def read() -> JobState:
        text = texts.pop(0) if len(texts) > 1 else texts[0]
        if isinstance(text, Exception):
            raise text
        return JobState(text, f"<b>{text}</b>", text != "done")

    output = JobOutput(read, cell)
    shown: Recorded = output._output  # type: ignore[assignment]
    return output, shown.shown


def test_an_output_is_updated_when_the_job_has_changed_and_the_thread_ends_with_it(
    shell: Any,
) -> None:
    updater = OutputUpdater()
    states = ["waits", "runs", "runs", OSError("busy"), "done"]
    output, shown = make_output(states)
    assert output.update()
    updater.add(output, shell)
    wait_for(lambda: updater.count == 0)
    assert shown == ["<b>waits</b>", "<b>runs</b>", "<b>done</b>"]
    wait_for(lambda: updater._thread is None)
    other, shown = make_output(["runs", "done"])
    updater.add(other, shell)  # a new thread
    wait_for(lambda: shown == ["<b>runs</b>", "<b>done</b>"])
    assert len(shell.events.callbacks) == 1


def test_outputs_of_a_cell_that_runs_again_are_not_updated(shell: Any) -> None:
    others = set(threading.enumerate())  # such as that of another test, which ends
    updater = OutputUpdater()
    first, _ = make_output(["runs"], "a")
    second, _ = make_output(["runs"], "b")
    updater.add(first, shell)
    updater.add(second, shell)
    started = [each.name for each in threading.enumerate() if each not in others]
    assert started.count("hyperplane-jobs") == 1
    ((event, callback),) = shell.events.callbacks
    assert event == "pre_run_cell"
    callback(SimpleNamespace(cell_id=None))  # of a front end without ids
    assert updater.count == 2
    callback(SimpleNamespace(cell_id="a"))
    assert updater._outputs == [second]
    callback(SimpleNamespace(cell_id="b"))
    wait_for(lambda: updater._thread is None)


def test_outputs_are_bounded_and_failing_ones_end(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_output, "MAX_OUTPUTS", 3)
    updater = OutputUpdater()
    for _ in range(10):
        updater.add(make_output([OSError("no store")])[0], shell)
    assert updater.count <= 3
    wait_for(lambda: updater._thread is None)


def test_a_job_that_has_ended_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Any] = []
    monkeypatch.setattr(
        live_output, "_updater", SimpleNamespace(add=lambda *given: added.append(given))
    )
    kernel_shell = SimpleNamespace(get_parent=lambda: {"metadata": {"cellId": "c"}})
    live_output.show_job(lambda: JobState("runs", "<b>runs</b>", True))
    assert added == []  # outside notebooks
    monkeypatch.setattr(live_output, "find_kernel_shell", lambda: kernel_shell)
    live_output.show_job(lambda: JobState("done", "<b>done</b>", False))
    assert added == []
    live_output.show_job(lambda: JobState("runs", "<b>runs</b>", True))
    ((output, of_shell),) = added
    assert output.cell == "c"
    assert of_shell is kernel_shell
