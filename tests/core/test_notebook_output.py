"""Notes in the output of a notebook's cell, and logs that are shown as notes."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.core import notebook_output, printed_text
from hyperplane.core.notebook_output import CellOutput, NoteHandler, find_cell_id, show_note


class Kernel:
    """A kernel that records what its cells show."""

    def __init__(self) -> None:
        self.shell = SimpleNamespace(kernel=self, execution_count=3)
        #: Newest content of each output, in their order.
        self.outputs: list[dict[str, Any]] = []

    def display(self, data: Any, *, metadata: Any = None, **options: Any) -> Any:
        assert options == {"raw": True, "display_id": True}
        place = len(self.outputs)
        self.outputs.append({**data, "metadata": metadata})

        def update(data: Any, *, raw: bool, metadata: Any = None) -> None:
            assert raw
            self.outputs[place] = {**data, "metadata": metadata}

        return SimpleNamespace(update=update)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(notebook_output, "_notes", None)
    monkeypatch.setattr(notebook_output, "find_kernel_shell", lambda: kernel.shell)
    monkeypatch.setattr("IPython.display.display", kernel.display)
    return kernel


def test_notes_of_one_cell_share_an_output_that_is_marked(kernel: Kernel) -> None:
    assert show_note("memory: 1 GB <given>\n")
    assert show_note("second \x1b[2J")
    kernel.shell.execution_count = 4
    assert show_note("third")
    first, second = kernel.outputs
    assert first["text/plain"] == "memory: 1 GB <given>\nsecond [2J"
    assert "&lt;given&gt;" in first["text/html"]
    assert first["metadata"] == {"hyperplane": "note"}
    assert second["text/plain"] == "third"


def test_many_and_long_notes_are_bounded(kernel: Kernel) -> None:
    for number in range(100):
        show_note(f"{number} {'x' * 5000}")
    lines = kernel.outputs[0]["text/plain"].splitlines()
    assert lines[0] == "70 earlier notes"
    assert len(lines) == 31
    assert max(map(len, lines)) == 1000


def test_notes_are_on_standard_error_outside_notebooks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not show_note("a note")
    printed_text.print_note("a note")
    assert capsys.readouterr().err == "a note\n"

    def fail(*given: object, **options: object) -> None:
        raise RuntimeError("the kernel ends")

    shell = SimpleNamespace(kernel=object(), execution_count=1)
    monkeypatch.setattr(notebook_output, "find_kernel_shell", lambda: shell)
    monkeypatch.setattr("IPython.display.display", fail)
    printed_text.print_note("late")
    assert capsys.readouterr() == ("", "late\n")


def test_a_printed_note_is_an_output_of_the_cell(
    kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> None:
    printed_text.print_note("a note")
    assert kernel.outputs[0]["text/plain"] == "a note"
    assert capsys.readouterr() == ("", "")


def take_logger(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Return the logger of the package without handlers; pytest adds its own before a test."""
    logger = logging.getLogger("hyperplane")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", False)
    return logger


def test_warnings_in_the_log_are_notes_unless_the_program_logs(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    package_logger = take_logger(monkeypatch)
    notebook_output.show_warnings_as_notes()
    notebook_output.show_warnings_as_notes()
    assert [type(each) for each in package_logger.handlers] == [NoteHandler]
    logging.getLogger("hyperplane.guard").info("nothing")
    logging.getLogger("hyperplane.guard").warning("idle for %d s", 7)
    stream = io.StringIO()
    package_logger.addHandler(logging.StreamHandler(stream))
    logging.getLogger("hyperplane.guard").warning("again")
    assert [each["text/plain"] for each in kernel.outputs] == ["idle for 7 s"]
    assert stream.getvalue() == "again\n"


def test_warnings_in_the_log_stay_on_standard_error_outside_notebooks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package_logger = take_logger(monkeypatch)
    notebook_output.show_warnings_as_notes()
    assert package_logger.handlers == []
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    package_logger.addHandler(NoteHandler())  # of a notebook that has ended
    logging.getLogger("hyperplane.guard").warning("still here")
    assert stream.getvalue() == "still here\n"


def test_the_id_of_a_cell_is_empty_if_it_is_not_sent() -> None:
    class Shell:
        def get_parent(self) -> dict[str, Any]:
            return {"metadata": {"cellId": "abc"}}

    assert find_cell_id(Shell()) == "abc"
    assert find_cell_id(object()) == ""


def test_an_output_is_replaced(kernel: Kernel) -> None:
    output = CellOutput()
    output.show("one", "<b>one</b>")
    output.show("two", "<b>two</b>")
    assert kernel.outputs == [{"text/plain": "two", "text/html": "<b>two</b>", "metadata": None}]
