"""Frames that tracebacks of public functions have, and what a notebook shows of an error."""

from __future__ import annotations

import re
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.core import public_calls, tracebacks
from hyperplane.core.errors import EngineError, RequestError, StartFailed
from hyperplane.core.tracebacks import FULL, render_error


def in_package(source: str, **names: Any) -> dict[str, Any]:
    """Return the globals of code that seems to be a module of the package."""
    space = {"__name__": "hyperplane.example", **names}
    exec(compile(source, "/site/hyperplane/example.py", "exec"), space)
    return space


def make_public(body: str, **names: Any) -> Any:
    source = f"def helper(*given):\n    {body}\ndef call(*given):\n    return helper(*given)\n"
    return public_calls.check_call(in_package(source, **names)["call"])


def frames_of(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def divide(number: int) -> float:
    return 1 / number


def test_an_error_of_this_package_ends_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    call = make_public("raise StartFailed('local', 'no room')", StartFailed=StartFailed)
    with pytest.raises(StartFailed) as caught:
        call()
    assert frames_of(caught.value) == ["test_an_error_of_this_package_ends_at_the_call", "wrapper"]
    monkeypatch.setenv(FULL, "1")
    with pytest.raises(StartFailed) as caught:
        call()
    assert frames_of(caught.value)[1:] == ["wrapper", "call", "helper"]


def test_ctrl_c_ends_at_the_call_or_in_the_users_function(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        make_public("raise KeyboardInterrupt")()
    name = "test_ctrl_c_ends_at_the_call_or_in_the_users_function"
    assert frames_of(caught.value) == [name, "wrapper"]

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        make_public("return given[0]()")(interrupt)
    assert frames_of(caught.value) == [name, "wrapper", "interrupt"]
    monkeypatch.setenv(FULL, "1")
    with pytest.raises(KeyboardInterrupt) as caught:
        make_public("raise KeyboardInterrupt")()
    assert frames_of(caught.value) == [name, "wrapper", "call", "helper"]


@pytest.mark.parametrize("value", ["", "0", "False", "off"])
def test_the_variable_can_be_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(FULL, value)
    assert not tracebacks.keeps_all_frames()


def test_an_error_of_the_user_has_no_frames_of_this_package_or_of_a_pool_above_it() -> None:
    pool = ThreadPoolExecutor(1)
    call = make_public("return pool.submit(*given).result()", pool=pool)
    with pool, pytest.raises(ZeroDivisionError) as caught:
        call(divide, 0)
    assert frames_of(caught.value)[1:] == ["wrapper", "divide"]


def test_an_error_within_this_package_or_a_library_keeps_its_frames() -> None:
    with pytest.raises(KeyError) as caught:
        make_public("return {}['missing']")()
    assert frames_of(caught.value)[1:] == ["wrapper", "call", "helper"]
    with pytest.raises(re.error) as of_library:
        make_public("return given[0]('(')")(re.compile)
    assert frames_of(of_library.value)[1:4] == ["wrapper", "call", "helper"]
    assert len(frames_of(of_library.value)) > 4


def test_a_library_below_the_users_code_keeps_its_frames() -> None:
    def parse() -> None:
        re.compile("(")

    with pytest.raises(re.error) as caught:
        make_public("return given[0]()")(parse)
    names = frames_of(caught.value)
    assert names[1:3] == ["wrapper", "parse"]
    assert len(names) > 3


class Shell:
    """The parts of IPython's shell that show an error."""

    colors = "NoColor"

    def __init__(self, mode: str = "Context") -> None:
        self.InteractiveTB = SimpleNamespace(
            mode=mode, structured_traceback=lambda *given: [f"full {given[0].__name__}"]
        )
        self.compile = SimpleNamespace(
            format_code_name=lambda file: ("Cell", "In[3]") if file == __file__ else None
        )


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return shell


def start(cause: Exception | None = None) -> None:
    def helper() -> None:
        raise StartFailed("local", "no room\nlast lines") from cause

    helper()


def test_a_notebook_shows_the_message_first_then_the_users_lines(shell: Shell) -> None:
    with pytest.raises(StartFailed) as caught:
        start(OSError(28, "No space left on device"))
    message, call, within, helper, cause, advice = render_error(caught.value)
    assert message == "StartFailed: engine local: no room\nlast lines"
    assert call.startswith("Cell In[3], line ")
    assert re.search(r"\n----> \d+         start\(OSError", call)
    assert within.partition("\n")[0].endswith(", in start")
    assert helper.partition("\n")[0].endswith(", in helper")
    assert cause == "caused by OSError: [Errno 28] No space left on device"
    assert FULL in advice


def test_a_notebook_shows_no_frame_of_the_package_and_no_advice_for_a_request(shell: Shell) -> None:
    with pytest.raises(RequestError) as caught:
        public_calls.check_call(lambda number: number)(nmber=1)
    parts = render_error(caught.value)
    assert len(parts) == 2
    assert "did you mean number?" in parts[0]
    assert "wrapper" not in parts[1]
    assert caught.value._render_traceback_() == parts


def test_causes_are_named_once_and_long_ones_are_cut(shell: Shell) -> None:
    first, second = EngineError("", "a" * 1000), EngineError("", "second")
    first.__context__, second.__cause__ = second, first
    parts = render_error(first)
    assert parts[1] == "while handling EngineError: second"
    assert [part.partition(" ")[0] for part in parts].count("caused") == 0
    other = render_error(second)
    assert other[1].startswith("caused by EngineError: aaa")
    assert len(other[1]) < 600


@pytest.mark.parametrize("way", ["variable", "mode"])
def test_all_frames_are_shown_on_request(
    monkeypatch: pytest.MonkeyPatch, shell: Shell, way: str
) -> None:
    if way == "variable":
        monkeypatch.setenv(FULL, "1")
    else:
        shell.InteractiveTB.mode = "Verbose"
    assert render_error(EngineError("", "x")) == ["full EngineError"]
