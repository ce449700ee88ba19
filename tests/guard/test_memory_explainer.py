"""The scheduler's plugin turns reports into errors of the tasks that caused them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import small_clusters
from distributed import Client, Event, KilledWorker, Scheduler, Worker
from distributed.core import Status
from distributed.scheduler import NoWorkerError
from test_memory_advice import make_report, make_task

from hyperplane.errors import ClusterStalled, WorkerCrash, WorkerOutOfMemory
from hyperplane.guard.memory_advice import WorkerLayout
from hyperplane.guard.memory_plugins import create_explainer
from hyperplane.guard.memory_report import EXIT_TOPIC, TOPIC, MemoryReport
from hyperplane.guard.stalls import StallGuard
from hyperplane.guard.worker_exits import WorkerExits, explain_exit

HOST = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}


def wait_for_event(name: str) -> None:
    with_event: Any = Event(name)
    with_event.wait()


@asynccontextmanager
async def open_cluster(workers: int = 1) -> AsyncIterator[tuple[Scheduler, Client, list[Worker]]]:
    """Start a scheduler with the plugin, and workers in this process."""
    async with Scheduler(**HOST) as scheduler:
        explainer = create_explainer(WorkerLayout())
        scheduler.add_plugin(explainer)
        await explainer.start(scheduler)
        started = [await Worker(scheduler.address, nthreads=1, **HOST) for _ in range(workers)]
        async with Client(scheduler.address, asynchronous=True) as client:
            try:
                yield scheduler, client, started
            finally:
                await Event("end", client=client).set()
                for worker in started:
                    await worker.close(executor_wait=False)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))  # type: ignore[arg-type]


async def wait_until(predicate: Callable[[], bool]) -> None:
    while not predicate():
        await asyncio.sleep(0.02)


def state_of(scheduler: Scheduler, key: str) -> str:
    return scheduler.tasks[key].state if key in scheduler.tasks else ""


def report_of(worker: str, *keys: str, **fields: Any) -> MemoryReport:
    report = make_report(*(make_task(key, key) for key in keys), **fields)
    return replace(report, worker=worker)


def test_a_task_whose_inputs_exceed_its_worker_is_explained() -> None:
    """Dask does not start it, and raises a MemoryError."""

    async def test() -> None:
        async with open_cluster() as (scheduler, client, (worker,)):
            parts = client.map(lambda number: bytes(700), range(2), key="part")
            await client.gather([client.submit(len, part) for part in parts])
            scheduler.workers[worker.address].memory_limit = 1_000
            with pytest.raises(WorkerOutOfMemory) as caught:
                await client.submit(lambda both: None, parts, key="finalize-compute-1")
            error = caught.value
            assert (error.cause, error.limit) == ("inputs", 1_000)
            assert error.inputs == pytest.approx(1466, abs=200)
            assert error.operation == "concatenation of partitions, as in compute()"
            assert error.fix == "initialize_cluster(..., ram_gb_per_proc=0.4)"
            assert "was not given it, because its inputs are larger than the limit" in str(error)
            assert "not started" in str(error)
            assert "huge collection" in str(error)
            assert type(error.__cause__) is MemoryError

    run(test)


def test_inputs_are_explained_with_their_own_figures_after_other_attempts() -> None:
    """A process that ran the task was ended; then Dask does not start it for its inputs."""

    async def test() -> None:
        async with open_cluster() as (scheduler, client, (worker,)):
            parts = client.map(lambda number: bytes(700), range(2), key="part")
            await client.gather([client.submit(len, part) for part in parts])
            ended = report_of("tcp://127.0.0.1:9", "finalize-compute-1", peak=490)
            scheduler.log_event(TOPIC, ended.as_event())
            scheduler.workers[worker.address].memory_limit = 1_000
            with pytest.raises(WorkerOutOfMemory) as caught:
                await client.submit(lambda both: None, parts, key="finalize-compute-1")
            assert (caught.value.cause, caught.value.limit) == ("inputs", 1_000)
            assert caught.value.inputs == pytest.approx(1466, abs=200)
            assert f"worker {worker.address} was not given it" in str(caught.value)

    run(test)


def test_a_certain_failure_is_raised_after_the_first_report() -> None:
    async def test() -> None:
        async with open_cluster() as (scheduler, client, (worker,)):
            future = client.submit(wait_for_event, "end", key="large")
            waiting = client.submit(wait_for_event, "end", key="waiting")
            below = client.submit(lambda x: x, future, key="below")
            await wait_until(lambda: state_of(scheduler, "waiting") == "processing")
            await wait_until(lambda: "below" in scheduler.tasks and bool(worker.state.executing))
            scheduler.log_event(TOPIC, report_of(worker.address, "large").as_event())
            for failed in (future, below):
                with pytest.raises(WorkerOutOfMemory, match="task large") as caught:
                    await failed
                assert caught.value.attempts == 1
            # It only waited: the end of the worker does not count.
            assert scheduler.tasks["waiting"].suspicious == -1
            await scheduler.remove_worker(worker.address, stimulus_id="test")
            assert scheduler.tasks["waiting"].suspicious == 0
            assert not waiting.done()

    run(test)


@pytest.mark.parametrize("state", ["queued", "waiting", "processing"])
def test_a_report_after_the_removal_of_the_worker_counts_too(state: str) -> None:
    async def test() -> None:
        async with open_cluster(2 if state == "processing" else 1) as (scheduler, client, workers):
            source = await client.scatter(1, workers=[workers[0].address], hash=False)
            needed = client.submit(lambda: 1, key="needed", workers=[workers[0].address])
            await needed
            inputs = {"queued": None, "waiting": needed, "processing": None}[state]
            future = client.submit(lambda _, name: wait_for_event(name), inputs, "end", key="large")
            await wait_until(lambda: state_of(scheduler, "large") == "processing")
            address = scheduler.tasks["large"].processing_on.address  # type: ignore[union-attr]
            await scheduler.remove_worker(address, stimulus_id="test")
            assert state_of(scheduler, "large") == state
            scheduler.log_event(TOPIC, report_of(address, "large").as_event())
            with pytest.raises(WorkerOutOfMemory, match="task large"):
                await future
            del source

    run(test)


def test_what_is_not_certain_is_raised_where_dask_gives_up() -> None:
    async def test() -> None:
        async with open_cluster(5) as (scheduler, client, _):
            future = client.submit(wait_for_event, "end", key="large")
            for attempt in range(4):
                await wait_until(lambda: state_of(scheduler, "large") == "processing")
                address = scheduler.tasks["large"].processing_on.address  # type: ignore[union-attr]
                report = report_of(address, "large", "other", peak=480 + attempt)
                scheduler.log_event(TOPIC, report.as_event())
                assert not future.done()
                await scheduler.remove_worker(address, stimulus_id="test")
            with pytest.raises(WorkerOutOfMemory, match="tried 4 times") as caught:
                await future
            assert caught.value.allowed_failures == 3
            assert caught.value.peak == 483_000_000
            assert caught.value.last_worker.address == address

    run(test)


def test_errors_without_reports_stay_as_they_are() -> None:
    async def test() -> None:
        async with open_cluster(5) as (scheduler, client, _):
            future = client.submit(wait_for_event, "end", key="large")
            for _ in range(4):
                await wait_until(lambda: state_of(scheduler, "large") == "processing")
                address = scheduler.tasks["large"].processing_on.address  # type: ignore[union-attr]
                await scheduler.remove_worker(address, stimulus_id="test")
            with pytest.raises(KilledWorker) as caught:
                await future
            assert type(caught.value) is KilledWorker
            with pytest.raises(ZeroDivisionError):
                await client.submit(lambda: 1 / 0)

    run(test)


def test_a_crash_is_explained_and_tasks_that_waited_are_not_blamed() -> None:
    async def test() -> None:
        async with open_cluster(5) as (scheduler, client, _):
            future = client.submit(wait_for_event, "end", key="crash")
            for _ in range(4):
                await wait_until(lambda: state_of(scheduler, "crash") == "processing")
                address = scheduler.tasks["crash"].processing_on.address  # type: ignore[union-attr]
                report = {"worker": address, "exit_code": -11, "running": ["crash", "beside"]}
                scheduler.log_event(EXIT_TOPIC, {**report, "peak": 300_000_000, "limit": 10**9})
                await scheduler.remove_worker(address, stimulus_id="test")
            with pytest.raises(KilledWorker, match="sample it used ") as caught:
                await future
            assert type(caught.value) is WorkerCrash
            assert caught.value.exit_code == -11
            assert "by signal 11 (SIGSEGV): a fault in compiled code" in str(caught.value)
            assert "used 0.3 of 1 GB. The task crash was tried 4 times" in str(caught.value)
            assert "Beside it beside ran there. What to do: run the task alone" in str(caught.value)
            waiting = client.submit(wait_for_event, "end", key="waits")
            await wait_until(lambda: state_of(scheduler, "waits") == "processing")
            address = scheduler.tasks["waits"].processing_on.address  # type: ignore[union-attr]
            report = {"worker": address, "exit_code": 3, "running": ["other"]}
            scheduler.log_event(EXIT_TOPIC, report)
            assert scheduler.tasks["waits"].suspicious == -1, "Dask counts one at the end"
            waiting.release()

    run(test)


def test_a_process_that_crashes_before_its_nanny_has_its_address_is_found_by_name() -> None:
    async def test() -> None:
        async with open_cluster(5) as (scheduler, client, _):
            future = client.submit(wait_for_event, "end", key="crash")
            for _ in range(4):
                await wait_until(lambda: state_of(scheduler, "crash") == "processing")
                worker: Any = scheduler.tasks["crash"].processing_on
                await scheduler.remove_worker(worker.address, stimulus_id="test")
                report = {"worker": "", "name": str(worker.name), "exit_code": 3, "running": []}
                scheduler.log_event(EXIT_TOPIC, report)
            with pytest.raises(KilledWorker) as caught:
                await future
            assert type(caught.value) is WorkerCrash
            assert caught.value.exit_code == 3

    run(test)


@pytest.mark.parametrize("running", [["x"], []])
def test_a_crash_of_an_earlier_run_does_not_explain_a_killed_worker(running: list[str]) -> None:
    exits = WorkerExits()
    exits.add({"worker": "tcp://a", "exit_code": -11, "running": running}, ["x"])
    killed = KilledWorker("x", SimpleNamespace(address="tcp://b"), 3)
    state = exits.create_state("x", "x", killed)
    assert state is not None
    assert state["exit_code"] == -11
    exits.end_run("x")
    assert exits.create_state("x", "x", killed) is None


@pytest.mark.parametrize("exit_code", [-6, -9])
def test_the_end_of_a_process_may_be_for_memory(exit_code: int) -> None:
    report = {"exit_code": exit_code, "running": ["x"], "peak": 100_000_000, "limit": 10**9}
    text = explain_exit("x", "x", 1, report)
    assert "In the last sample it used 0.1 of 1 GB. The task x was tried 1 time." in text
    assert ("a failed allocation" if exit_code == -6 else "or the kernel sent") in text


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_that_crash_or_exit_in_a_task() -> None:
    def end(how: str) -> None:
        import os

        os.kill(os.getpid(), 11) if how == "crash" else os._exit(3)

    with small_clusters.started() as (client, _):
        found = {}
        for how in ("crash", "exit"):
            with pytest.raises(WorkerCrash) as caught:
                client.submit(end, how, pure=False).result(small_clusters.SOON)
            found[how] = (caught.value.exit_code, caught.value.operation, caught.value.attempts)
        assert found == {"crash": (-11, "end", 4), "exit": (3, "end", 4)}


def test_attempts_of_an_earlier_run_do_not_count() -> None:
    async def test() -> None:
        async with open_cluster() as (scheduler, client, _):
            explainer: Any = scheduler.plugins["hyperplane-memory-explainer"]
            for run in range(2):
                future = client.submit(wait_for_event, f"run-{run}", key="large")
                await wait_until(lambda: state_of(scheduler, "large") == "processing")
                # Another process, so that the task is not ended.
                scheduler.log_event(TOPIC, report_of("tcp://other", "large", "b").as_event())
                assert len(explainer._select_reports("large")) == 1
                await Event(f"run-{run}", client=client).set()
                await future
                assert len(explainer._select_reports("large")) == 0
                del future
                await wait_until(lambda: "large" not in scheduler.tasks)
            assert len(explainer.reports) == 2

    run(test)


def test_the_error_of_an_allocation_is_the_cause() -> None:
    async def test() -> None:
        async with open_cluster() as (scheduler, client, (worker,)):

            def fail_to_allocate(name: str) -> None:
                wait_for_event(name)
                raise MemoryError("of the test")

            future = client.submit(fail_to_allocate, "go", key="large")
            await wait_until(lambda: state_of(scheduler, "large") == "processing")
            report = report_of(worker.address, "large", cause="allocation")
            scheduler.log_event(TOPIC, report.as_event())
            await Event("go", client=client).set()
            with pytest.raises(WorkerOutOfMemory) as caught:
                await future
            assert repr(caught.value.__cause__) == "MemoryError('of the test')"
            assert "fail_to_allocate" in [entry.name for entry in caught.traceback]

    run(test)


def test_a_shuffle_that_fails_for_memory_is_explained() -> None:
    async def test() -> None:
        async with open_cluster() as (scheduler, client, (worker,)):
            shuffles: Any = scheduler.extensions["shuffle"]
            shuffles._shuffles["0f3"] = [SimpleNamespace(participating_workers={worker.address})]
            report = report_of(worker.address, "p2pshuffle", "b")
            scheduler.log_event(TOPIC, report.as_event())  # of an earlier computation

            def fail_as_a_shuffle(name: str) -> None:
                wait_for_event(name)
                raise RuntimeError("P2P 0f3 failed during transfer phase")

            for number, address in enumerate(["", "tcp://other", worker.address]):
                future = client.submit(fail_as_a_shuffle, f"go-{number}", key=f"p-{number}")
                name = f"p-{number}"
                await wait_until(lambda name=name: state_of(scheduler, name) == "processing")
                if address:
                    scheduler.log_event(TOPIC, replace(report, worker=address).as_event())
                await Event(f"go-{number}", client=client).set()
                with pytest.raises((RuntimeError, WorkerOutOfMemory), match="P2P 0f3") as caught:
                    await future
                del future
                explained = isinstance(caught.value, WorkerOutOfMemory)
                assert explained == (address == worker.address)
            assert repr(caught.value.__cause__).startswith("RuntimeError('P2P 0f3 failed")
            assert "fail_as_a_shuffle" in [entry.name for entry in caught.traceback]

    run(test)


def test_tasks_end_only_when_every_worker_stays_paused() -> None:
    async def test() -> None:
        async with open_cluster(2) as (scheduler, client, workers):
            futures = [
                client.submit(wait_for_event, "end", key=f"task-{n}", workers=[worker.address])
                for n, worker in enumerate(workers)
            ]
            await wait_until(lambda: all(worker.state.executing for worker in workers))

            async def change_status(worker: Worker, status: Status) -> None:
                worker.memory_manager.memory_pause_fraction = False  # its memory is not full
                worker.status = status
                await wait_until(lambda: scheduler.workers[worker.address].status == status)

            def report(worker: Worker, cause: str) -> None:
                scheduler.log_event(TOPIC, report_of(worker.address, cause=cause).as_event())

            first, second = workers
            await change_status(first, Status.paused)
            report(first, "spill disk")
            await change_status(second, Status.paused)
            await change_status(first, Status.running)
            await change_status(first, Status.paused)
            report(second, "paused")  # the first one has been paused for a moment only
            assert {each.state for each in scheduler.tasks.values()} == {"processing"}
            report(first, "spill disk")
            causes = []
            for future in futures:
                with pytest.raises(WorkerOutOfMemory) as caught:
                    await future
                causes.append(caught.value.cause)
            assert causes == ["spill disk", "paused"]

    run(test)


def test_every_client_gets_the_explanation() -> None:
    """Also one that the program creates itself: the scheduler replaces the error of the task."""

    async def test() -> None:
        async with (
            open_cluster() as (scheduler, client, (worker,)),
            Client(scheduler.address, asynchronous=True, set_as_default=False) as other,
        ):
            futures = [each.submit(wait_for_event, "end", key="x") for each in (client, other)]
            await wait_until(lambda: state_of(scheduler, "x") == "processing")
            await wait_until(lambda: len(scheduler.tasks["x"].who_wants or ()) == 2)
            report = report_of(worker.address, "x")
            scheduler.log_event(TOPIC, report.as_event())
            for future in futures:
                with pytest.raises(WorkerOutOfMemory):
                    await future

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize("reported", [True, False])
def test_tasks_that_wait_later_for_a_paused_worker_end_with_its_last_report(reported: bool) -> None:
    """A worker reports a pause once: later tasks, or a short interruption, cause no report."""

    async def test() -> None:
        async with open_cluster(1) as (scheduler, client, (worker,)):
            guard = StallGuard(0.5)
            scheduler.add_plugin(guard)
            await guard.start(scheduler)
            worker.memory_manager.memory_pause_fraction = False  # its memory is not full

            async def change_status(status: Status) -> None:
                worker.status = status
                await wait_until(lambda: scheduler.workers[worker.address].status == status)

            await change_status(Status.paused)
            if reported:
                report = report_of(worker.address, cause="spill disk")
                scheduler.log_event(TOPIC, report.as_event())
            await change_status(Status.running)
            await change_status(Status.paused)
            future = client.submit(sum, [1, 2], workers=[worker.address], key="late")
            expected = WorkerOutOfMemory if reported else ClusterStalled
            with pytest.raises(expected) as caught:
                await future
            assert caught.value.cause == ("spill disk" if reported else "memory")
            await guard.close()

    run(test)


def test_a_lack_of_workers_after_reports_is_explained() -> None:
    async def test() -> None:
        async with open_cluster() as (scheduler, client, (worker,)):
            scheduler.log_event(TOPIC, report_of(worker.address, "a", "b").as_event())
            errors = []
            for name in ("early", "late"):
                scheduler.no_workers_timeout = 600.0  # not before the report
                future = client.submit(wait_for_event, "end", key=name)
                await wait_until(lambda name=name: name in scheduler.tasks)
                if name == "late":
                    scheduler.log_event(TOPIC, report_of(worker.address, "a", "b").as_event())
                if worker.address in scheduler.workers:
                    await scheduler.remove_worker(worker.address, stimulus_id="test")
                scheduler.no_workers_timeout = 0.01
                with pytest.raises((WorkerOutOfMemory, NoWorkerError)) as caught:
                    await future
                errors.append(caught.value)
                del future
            assert [type(error) for error in errors] == [NoWorkerError, WorkerOutOfMemory]
            assert isinstance(errors[1].__cause__, NoWorkerError)

    run(test)
