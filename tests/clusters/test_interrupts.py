"""Ctrl-C while a cluster starts is deferred during steps that it would leave half done."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
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
def test_a_cluster_whose_lines_cannot_be_printed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*arguments: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(start_lines, "print_ready_lines", closed)
    with pytest.raises(BrokenPipeError):
        hyperplane.initialize_cluster(**ONE)
    assert records.read_all() == []
