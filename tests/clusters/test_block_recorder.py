"""``hyperplane.record``: the record of a block of code."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from subprograms import wait_until

import hyperplane
from hyperplane.clusters.dask.block_recorder import BlockRecorder
from hyperplane.errors import RequestError
from hyperplane.history import RunRecord, list_runs, read_run
from hyperplane.history.store import history_folder
from hyperplane.reports import render_report

pytestmark = pytest.mark.cluster
MB = 10**6
SMALL: dict[str, Any] = {
    "num_workers": 1, "nprocs": 2, "nthreads": 1, "ram_gb_per_proc": 0.7, "local_fit": "exact",
    "engine": "local", "name": "flights",
}  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL))
    yield client
    client.close()
    cluster.close()


def fill(size: int) -> int:
    return int(np.ones(size, "u1").sum())


def test_a_block_has_the_tasks_and_the_memory_of_that_time_only(client: Client) -> None:
    assert client.submit(fill, 200 * MB, key="before").result() == 200 * MB
    with hyperplane.record("sums") as block:
        futures = client.map(fill, range(10 * MB, 10 * MB + 20), key="during")
        assert sum(client.gather(futures)) == 200 * MB + 190
    client.submit(fill, 10, key="after").result()
    run = read_run("sums")
    assert run == block.run
    assert (run.block, run.cluster, run.exit_reason, run.label) == (
        "sums", "flights", "done", "sums",
    )  # fmt: skip
    assert [(task.name, task.count) for task in run.tasks] == [("during", 20)]
    assert (run.plan.engine, run.plan.nprocs, run.plan.ram_per_proc) == ("local", 2, 700 * MB)
    assert {worker.name for worker in run.workers} == {"0", "1"}
    # The kernel's peak of the process is from before the block.
    peaks = [worker.peak for worker in run.workers]
    assert all(40 * MB < peak < 320 * MB for peak in peaks), peaks
    assert 0 < run.cpu_seconds < 60
    assert run.timeline is not None
    assert {group.name for group in run.timeline.groups} == {"during"}
    assert 0 < run.seconds < 60
    assert "flights, engine local" in render_report("sums")


def test_a_larger_peak_within_a_block_is_seen_however_short_it_is(client: Client) -> None:
    with hyperplane.record("peak") as block:
        client.submit(fill, 300 * MB, key="large").result()
    assert block.run is not None
    assert max(worker.peak for worker in block.run.workers) > 300 * MB


def test_blocks_within_each_other_have_both_names(client: Client) -> None:
    with hyperplane.record("clean"):
        client.submit(fill, 1, key="first").result()
        with hyperplane.record("join") as inner:
            client.submit(fill, 2, key="second").result()
    assert inner.run is not None
    assert inner.run.block == "clean/join"
    assert inner.run.name.endswith("-clean.join")
    assert read_run("clean/join") == inner.run
    assert [task.name for task in inner.run.tasks] == ["second"]
    assert {task.name for task in read_run("clean").tasks} == {"first", "second"}
    assert [run.label for run in list_runs("clean/join")] == ["clean/join"]


def test_a_failure_is_recorded_without_its_message_and_raised(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), hyperplane.record("broken"):
        client.submit(lambda: 1 / 0, key="divide", retries=0).result()
    run = read_run("broken")
    assert run.exit_reason == "failed: ZeroDivisionError"
    assert [(task.name, task.failed) for task in run.tasks] == [("divide", 1)]
    with pytest.raises(KeyboardInterrupt), hyperplane.record("stopped"):
        raise KeyboardInterrupt
    assert read_run("stopped").exit_reason == "interrupted"


def test_each_call_of_a_decorated_function_is_a_block(client: Client) -> None:
    @hyperplane.record("twice")
    def twice(number: int) -> int:
        """Return the double."""
        return client.submit(lambda: 2 * number, pure=False).result()

    assert (twice(1), twice(2)) == (2, 4)
    assert twice.__doc__ == "Return the double."
    runs = list_runs("twice")
    assert len(runs) == 2
    assert len({run.name for run in runs}) == 2


def test_a_measurement_leaves_nothing_on_the_scheduler(client: Client) -> None:
    scheduler = client.cluster.scheduler
    before = set(scheduler.plugins), set(scheduler.handlers)
    with hyperplane.record("a"):
        assert set(scheduler.plugins) > before[0]
    assert (set(scheduler.plugins), set(scheduler.handlers)) == before


def find_measurements(client: Client) -> list[str]:
    scheduler = client.cluster.scheduler
    return [name for name in (*scheduler.plugins, *scheduler.handlers) if "block" in name]


def run_in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result(60)


def test_a_generator_may_be_closed_in_another_thread_or_task(client: Client) -> None:
    def generate() -> Iterator[BlockRecorder]:
        with hyperplane.record("lines") as block:
            client.submit(fill, 3, key="line", pure=False).result()
            yield block

    lines = generate()
    block = next(lines)
    run_in_thread(lines.close)
    assert block.run is not None
    assert (block.run.block, block.run.exit_reason) == ("lines", "done")

    async def generate_later() -> AsyncIterator[BlockRecorder]:
        with hyperplane.record("later") as block:
            yield block

    async def close_in_task() -> BlockRecorder:
        lines = generate_later()
        block = await anext(lines)
        await asyncio.create_task(lines.aclose())
        with hyperplane.record("same-task") as after:
            pass
        assert after.run is not None
        assert after.run.block == "same-task"
        return block

    later = asyncio.run(close_in_task()).run
    assert later is not None
    assert later.block == "later"
    with hyperplane.record("after") as after:
        pass
    assert after.run is not None
    assert after.run.block == "after"
    assert not find_measurements(client)


def test_blocks_may_end_in_another_order(client: Client) -> None:
    first, second = hyperplane.record("first"), hyperplane.record("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with hyperplane.record("third") as third:
        pass
    second.__exit__(None, None, None)
    with hyperplane.record("fourth") as fourth:
        pass
    blocks = [block.run.block if block.run else "" for block in (first, second, third, fourth)]
    assert blocks == ["first", "first/second", "first/second/third", "fourth"]


def test_a_recorder_is_used_for_one_block_at_a_time(client: Client) -> None:
    block = hyperplane.record("shared")
    with block:
        for use in (block.__enter__, lambda: run_in_thread(block.__enter__)):
            with pytest.raises(RequestError, match="of which no block is open") as caught:
                use()
            assert len(caught.value.faults) == 1
    first = block.run
    with block:
        assert block.run is None
    assert first is not None
    assert block.run is not None
    assert first.name != block.run.name
    assert not find_measurements(client)


def test_an_end_without_a_begin_is_only_a_warning() -> None:
    with pytest.warns(UserWarning, match="'never' has no record: it was not open"):
        hyperplane.record("never").__exit__(None, None, None)


def test_no_fault_of_a_record_replaces_the_result_or_the_error(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(record: object) -> None:
        raise AttributeError("a fault")

    monkeypatch.setattr("hyperplane.clusters.dask.block_recorder.write_run", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroDivisionError), hyperplane.record("faulty"):
            _ = 1 / 0
        with hyperplane.record("faulty") as block:
            pass
    assert block.run is None
    assert "'faulty' has no record: a fault" in caplog.text
    assert not find_measurements(client)


@pytest.mark.parametrize("is_late", [False, True])
def test_an_interrupted_begin_leaves_no_measurement(
    client: Client, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    sync = Client.sync

    def interrupt(self: Client, function: Any, *args: Any, **kwargs: Any) -> Any:
        if is_late:
            sync(self, function, *args, **kwargs)
        raise KeyboardInterrupt

    block = hyperplane.record("interrupted")
    with monkeypatch.context() as patch:
        patch.setattr(Client, "sync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            block.__enter__()
    wait_for_no_measurement(client)
    with block:
        pass


SCHEDULER = """
import sys, time
from distributed import LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
    )
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


@contextmanager
def run_scheduler() -> Iterator[tuple[Client, int]]:
    """Run a scheduler in a process that can be stopped; yield a client and the process."""
    command = [sys.executable, "-c", SCHEDULER]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        try:
            with Client(process.stdout.readline().strip(), set_as_default=False) as client:
                yield client, process.pid
        finally:
            process.kill()


def stop(process: int) -> None:
    os.kill(process, signal.SIGSTOP)
    os.waitpid(process, os.WUNTRACED)  # until then, its threads can still answer


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs signals of POSIX")
@pytest.mark.parametrize("is_late", [False, True])
def test_a_scheduler_that_does_not_answer_does_not_stop_the_block(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    with run_scheduler() as (client, process):
        with ExitStack() as stack:
            patch = stack.enter_context(monkeypatch.context())
            patch.setattr("hyperplane.clusters.dask.block_measurement._ANSWER_SECONDS", 1.0)
            stack.callback(os.kill, process, signal.SIGCONT)
            if not is_late:
                stop(process)
            stack.enter_context(
                pytest.warns(UserWarning, match="the scheduler did not answer within 1 s")
            )
            with hyperplane.record("stopped", client=client) as block:
                if is_late:
                    stop(process)
        assert block.run is not None
        assert (block.run.exit_reason, block.run.tasks) == ("done", ())
        with hyperplane.record("answered", client=client) as block:
            client.submit(sum, [1, 2], key="after").result()
    assert [task.name for task in block.run.tasks] == ["after"]


@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_scheduler_that_ended_is_not_taken_for_a_closed_client(is_closed: bool) -> None:
    def lose_scheduler() -> None:
        with hyperplane.record("lost", client=client):
            process.kill()
            wait_until(lambda: client.status == expected, 60)

    expected = "closed" if is_closed else "connecting"
    with subprocess.Popen(
        [sys.executable, "-c", SCHEDULER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address, seconds = process.stdout.readline().strip(), 2 if is_closed else 60
        with (
            Client(address, set_as_default=False, timeout=seconds) as client,
            pytest.warns(UserWarning, match="figures: the client has lost the connection to its"),
        ):
            lose_scheduler()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="for systems that can fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_in_a_block_does_not_write_its_record(client: Client) -> None:
    with hyperplane.record("parent") as block:
        client.submit(fill, 7, key="parent").result()
        child = os.fork()
        if not child:
            # As an exception would leave the block, without running the tests a second time.
            try:
                warnings.simplefilter("error")
                block.__exit__(SystemExit, SystemExit(0), None)
            finally:
                os._exit(int(block.run is not None))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert list_runs("parent") == []
    assert [task.name for task in read_run("parent").tasks] == ["parent"]
    assert len(list_runs("parent")) == 1


def test_an_interrupted_end_leaves_no_measurement(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    block = hyperplane.record("interrupted")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), block:
        patch.setattr(Client, "sync", interrupt)
    assert block.run is None
    wait_for_no_measurement(client)


def wait_for_no_measurement(client: Client) -> None:
    end = time.monotonic() + 30
    while find_measurements(client) and time.monotonic() < end:
        time.sleep(0.05)
    assert not find_measurements(client)


def test_of_a_name_that_is_too_long_the_outer_ones_are_left_out(client: Client) -> None:
    with ExitStack() as stack:
        names = [letter * 40 for letter in "abcd"]
        blocks = [stack.enter_context(hyperplane.record(name)) for name in names]
    runs = [block.run.block if block.run else "" for block in blocks]
    assert runs == [
        "/".join(names[:1]),
        "/".join(names[:2]),
        "/".join(names[:3]),
        "/".join(names[1:]),
    ]
    assert read_run(runs[-1]) == blocks[-1].run


def test_a_client_that_leaves_ends_its_measurement(client: Client) -> None:
    scheduler = client.cluster.scheduler
    before = set(scheduler.plugins)
    other = Client(client.cluster, set_as_default=False)

    def leave() -> None:
        with hyperplane.record("left", client=other):
            other.close()
            end = time.monotonic() + 30
            while set(scheduler.plugins) != before and time.monotonic() < end:
                time.sleep(0.05)
            assert set(scheduler.plugins) == before

    with pytest.warns(UserWarning, match="has no figures: the client was closed in it"):
        leave()
    run = read_run("left")
    assert (run.exit_reason, run.tasks, run.cluster) == ("done", (), "flights")
    render_report(run)


def test_a_cluster_of_dask_is_recorded() -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="700MB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        hyperplane.record("plain") as block,
    ):
        client.submit(fill, 100 * MB, key="plain").result()
        with Client(cluster.scheduler_address) as other, hyperplane.record("address") as by_address:
            other.submit(fill, 5, key="there").result()
    assert by_address.run is not None
    assert [task.name for task in by_address.run.tasks] == ["there"]
    run = block.run
    assert run is not None
    assert {task.name for task in run.tasks} == {"plain", "there"}
    assert (run.plan.engine, run.plan.nprocs, run.plan.nthreads) == ("", 1, 1)
    assert (run.plan.nodes, run.plan.max_nodes) == (0, 0)
    assert run.plan.ram_per_proc == 700 * MB
    assert run.cpu_seconds > 0
    assert max(worker.peak for worker in run.workers) > 100 * MB
    render_report(run)


def test_workers_that_are_threads_are_recorded_without_errors_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("distributed"), "propagate", True)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        hyperplane.record("threads", client=client) as block,
    ):
        client.submit(fill, 5, key="thread").result()
    assert block.run is not None
    assert [task.name for task in block.run.tasks] == ["thread"]
    assert (block.run.plan.nodes, block.run.plan.nprocs) == (0, 2)
    assert "No handler" not in caplog.text


def test_a_cluster_that_another_process_has_started_has_its_plan(client: Client) -> None:
    with (
        Client(
            client.cluster.scheduler_address, security=client.security, set_as_default=False
        ) as other,
        hyperplane.record("joined", client=other) as block,
    ):
        pass
    with hyperplane.record("own") as own:
        pass
    assert block.run is not None
    assert own.run is not None
    assert block.run.plan == own.run.plan
    assert (block.run.plan.engine, block.run.plan.nodes) == ("local", 1)


def test_without_a_cluster_the_block_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperplane.clusters.dask.block_recorder.get_active_client", lambda: None)
    began = False
    with pytest.raises(RequestError) as caught, hyperplane.record("alone"):
        began = True
    assert not began
    assert len(caught.value.faults) == 1
    assert "call hyperplane.initialize_cluster() first" in str(caught.value)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "latest", "x" * 64, None, len])
def test_names_that_no_record_can_have(name: Any) -> None:
    with pytest.raises(RequestError, match="name"):
        hyperplane.record(name)


def test_functions_whose_code_runs_later_are_refused() -> None:
    async def later() -> None:
        """Return later."""

    with pytest.raises(RequestError, match="runs after the call"):
        hyperplane.record("x")(later)
    with pytest.raises(RequestError, match="not a class"):
        hyperplane.record("x")(Client)


def test_a_full_disk_does_not_change_the_result(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, record: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("hyperplane.history.store._write_new", fail)

    @hyperplane.record("full")
    def compute() -> int:
        return client.submit(fill, 7).result()

    with pytest.warns(UserWarning, match="'full' has no record: ") as caught:
        assert compute() == 7
    text = str(caught[0].message)
    assert f"{history_folder()}/" in text
    assert "free space on that disk, or set XDG_STATE_HOME" in text


def test_a_block_prints_as_its_record():
    recorder = hyperplane.record("clean")
    assert repr(recorder) == str(recorder) == "record('clean')"
    assert recorder._repr_html_() is None
    recorder.run = RunRecord(name="20261127-160314-clean", cluster="c", started=1, ended=2)
    assert repr(recorder) == repr(recorder.run)
    assert str(recorder) == str(recorder.run)
    assert recorder._repr_html_() == recorder.run._repr_html_()
