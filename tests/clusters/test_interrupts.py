"""Ctrl-C while a cluster starts is deferred during steps that it would leave half done."""

from __future__ import annotations

import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from scale import scaled
from services import temporary_directory

import hyperplane
from hyperplane.clusters import interrupts, records, replacement, start_lines
from hyperplane.clusters.dask import guarded_cluster, local_process
from hyperplane.clusters.dask.framework import DaskFramework
from hyperplane.clusters.dask.local import forkserver, start

ONE: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
    "name": "interrupted",
}


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_deferred_to_the_end_of_the_block() -> None:
    handler, reached = signal.getsignal(signal.SIGINT), []

    def block() -> None:
        with interrupts.defer_interrupts():
            with interrupts.defer_interrupts():  # nested in another start
                interrupt()
            reached.append(signal.getsignal(signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reached
    assert reached != [handler]
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_error_of_the_block_does_not_hide_a_deferred_interrupt() -> None:
    def block() -> None:
        with interrupts.defer_interrupts():
            interrupt()
            raise ValueError

    with pytest.raises(KeyboardInterrupt):
        block()


def test_a_deferred_interrupt_is_delivered_before_allow_interrupts_begins() -> None:
    begun = []

    def block() -> None:
        with interrupts.defer_interrupts():
            interrupt()
            with interrupts.allow_interrupts():
                begun.append(True)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert not begun


def test_allow_interrupts_delivers_at_once_and_the_cleanup_is_not_interrupted() -> None:
    reached = []

    def block() -> None:
        with interrupts.defer_interrupts():
            try:
                with interrupts.allow_interrupts():
                    interrupt()
                    reached.append("after the first")
            finally:
                for _ in range(interrupts.MAX_DEFERRED - 1):
                    interrupt()
                reached.append("undone")
                interrupt()  # as by a user who does not want to wait
                reached.append("after the last")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reached == ["undone"]


def test_other_threads_do_not_change_the_signal_handler() -> None:
    handler, seen = signal.getsignal(signal.SIGINT), []

    def look() -> None:
        with interrupts.defer_interrupts(), interrupts.allow_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [handler]


class _Alarm(TimeoutError):
    """What a handler raises in a program that limits the time of a call by itself."""


@pytest.fixture
def alarm() -> Iterator[Any]:
    """Yield a handler of SIGALRM that raises an exception."""

    def handler(number: int, frame: Any) -> None:
        raise _Alarm from ZeroDivisionError()

    before = signal.signal(signal.SIGALRM, handler)
    yield handler
    signal.signal(signal.SIGALRM, before)


def test_nothing_in_a_start_catches_what_a_signal_handler_raises(alarm: Any) -> None:
    @interrupts.carry_handler_errors  # nested, as start in initialize_cluster
    def step() -> None:
        signal.raise_signal(signal.SIGALRM)

    @interrupts.carry_handler_errors
    def block() -> None:
        try:
            step()
        except Exception as error:  # as steps of a start do
            raise ValueError("the start has failed") from error

    with pytest.raises(_Alarm) as caught:
        block()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert signal.getsignal(signal.SIGALRM) is alarm


def test_an_exception_of_the_handler_of_ctrl_c_is_passed_on() -> None:
    def handler(number: int, frame: Any) -> None:
        raise _Alarm

    def begin() -> Any:
        with suppress(Exception):
            interrupt()
            with interrupts.allow_interrupts():
                pass

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(_Alarm):
            interrupts.complete_start(begin)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_the_program_sets_meanwhile_stays(alarm: Any) -> None:
    interrupts.carry_handler_errors(lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN))()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN


def test_a_handler_that_calls_the_carrying_one_raises_plainly_afterwards(alarm: Any) -> None:
    def begin() -> Any:
        previous = signal.getsignal(signal.SIGALRM)
        signal.signal(signal.SIGALRM, lambda *arguments: previous(*arguments))

    interrupts.complete_start(begin)
    with pytest.raises(_Alarm) as caught:
        signal.raise_signal(signal.SIGALRM)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_context_of_a_handlers_error_stays() -> None:
    def handler(number: int, frame: Any) -> None:
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            raise _Alarm  # noqa: B904 - the context is implicit

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(_Alarm) as caught:
            interrupts.carry_handler_errors(signal.raise_signal)(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    assert not caught.value.__suppress_context__


# Python ignores what a handler raises in a callback of the garbage collector, such as Hypothesis's.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signals_at_any_moment_of_a_start_leave_no_state() -> None:
    def handler(number: int, frame: Any) -> None:
        raise _Alarm

    before = signal.signal(signal.SIGALRM, handler)
    draw, kinds = random.Random(5), set()
    try:
        for _ in range(scaled(1_000, 30_000)):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 2e-4))
                    interrupts.complete_start(lambda: None)  # type: ignore[arg-type, return-value]
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except BaseException as error:  # noqa: BLE001 - the test looks at all of them
                kinds.add(type(error))
        with pytest.raises(_Alarm):
            interrupts.carry_handler_errors(signal.raise_signal)(signal.SIGALRM)
        assert kinds <= {_Alarm}
        assert signal.getsignal(signal.SIGALRM) is handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_an_error_of_the_start_is_not_changed() -> None:
    def begin() -> Any:
        raise TimeoutError("of the start")

    with pytest.raises(TimeoutError, match="of the start"):
        interrupts.complete_start(begin)


@pytest.fixture(scope="module")
def folder_of_first() -> Iterator[str]:
    """The temporary directory of a cluster that runs while others are interrupted."""
    with temporary_directory():
        client, cluster = hyperplane.initialize_cluster(**{**ONE, "name": "first"})
        with cluster, client:
            yield tempfile.gettempdir()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("place", "name"),
    [
        (records, "reserve"),
        (forkserver, "acquire"),
        (start, "_worker_config"),
        (local_process, "Client"),
        (guarded_cluster.GuardedCluster, "begin_idle_timeout"),
        (DaskFramework, "prepare"),
        (replacement, "_is_open"),
        (start_lines, "print_ready_lines"),
    ],
)
def test_ctrl_c_after_any_step_leaves_nothing(
    place: Any, name: str, folder_of_first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", folder_of_first)
    monkeypatch.setenv("TMPDIR", folder_of_first)
    real, interrupted = getattr(place, name), []

    def and_then_interrupt(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        interrupted.append(name)
        interrupt()
        return found

    before = sorted(Path(folder_of_first).rglob("*"))
    assert before
    with monkeypatch.context() as patch:
        patch.setattr(place, name, and_then_interrupt)
        with pytest.raises(KeyboardInterrupt):
            hyperplane.initialize_cluster(**ONE)
    assert interrupted
    assert [record.name for record in records.read_all(starting=True)] == ["first"]
    assert sorted(Path(folder_of_first).rglob("*")) == before


@pytest.mark.cluster
def test_a_cluster_is_closed_if_a_step_after_its_start_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(start_lines, "print_ready_lines", fail)
    with pytest.raises(ZeroDivisionError):
        hyperplane.initialize_cluster(**ONE)
    assert records.read_all() == []
