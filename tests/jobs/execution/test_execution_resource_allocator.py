"""Allocation of resources to concurrent steps: fit, order and limits."""

from __future__ import annotations

import asyncio
import time

import pytest
from job_cases import bash

from hyperplane import config
from hyperplane.jobs.definition.step import Resources
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.resource_allocator import Demand, ResourceAllocator
from hyperplane.jobs.runners import local
from hyperplane.platforms.local import gpus


def step(**resources):
    options = {"max_parallel": resources.pop("max_parallel", None), "chunks": 1_000}
    return bash("step", "true", resources=Resources(**resources), **options)


def capacity(cores=4, memory=8e9, slots=16, gpus=1):
    return ResourceAllocator(cores, memory, slots, gpus)


async def hold_reservation(room, demand, order, name, release):
    async with room.reserve(demand):
        order.append(name)
        await release.wait()


async def start_reservations(room, order, *named):
    """Start reservations; return the task of each and the event that releases it, by name."""
    reservations = {}
    for name, demand in named:
        release = asyncio.Event()
        reservations[name] = (
            asyncio.ensure_future(hold_reservation(room, demand, order, name, release)),
            release,
        )
        await asyncio.sleep(0)
    return reservations


async def run_pending_tasks():
    for _ in range(5):
        await asyncio.sleep(0)


def run_test(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


@pytest.mark.parametrize(
    "requested", [{"cores": 500}, {"ram_gb": 5_000}, {"cores": 1, "ram_gb": 9}]
)
def test_a_step_that_requests_more_than_the_machine_runs_alone(requested):
    async def main():
        room, order = capacity(), []
        large, plain = room.demand(step(**requested)), room.demand(step())
        small = room.demand(step(cores=0.1))
        reservations = await start_reservations(
            room, order, ("p", plain), ("L", large), ("q", plain), ("s", small)
        )
        await run_pending_tasks()
        assert order == ["p"]  # the large one waits for it, and those after the large one wait
        reservations["p"][1].set()
        await run_pending_tasks()
        assert order == ["p", "L"]
        reservations["L"][1].set()
        await run_pending_tasks()
        assert order == ["p", "L", "q", "s"]
        for task, release in reservations.values():
            release.set()
            await task

    run_test(main())


def test_a_large_step_is_not_passed_by_small_ones_for_ever():
    async def main():
        room, order = capacity(), []
        small, large = room.demand(step(cores=1)), room.demand(step(cores=4))
        reservations = await start_reservations(room, order, ("a", small), ("L", large))
        reservations |= await start_reservations(
            room, order, *((f"later{i}", small) for i in range(20))
        )
        await run_pending_tasks()
        assert order == ["a"]
        reservations["a"][1].set()
        await run_pending_tasks()
        assert order == ["a", "L"]
        for _, release in reservations.values():
            release.set()
        await asyncio.gather(*(task for task, _ in reservations.values()))
        assert order[2:] == [f"later{i}" for i in range(20)]

    run_test(main())


def test_steps_that_wait_for_a_slot_do_not_delay_steps_that_need_memory():
    async def main():
        room, order = capacity(slots=1), []
        plain, measured = room.demand(step()), room.demand(step(ram_gb=1))
        reservations = await start_reservations(
            room, order, ("a", plain), ("b", plain), ("m", measured)
        )
        await run_pending_tasks()
        assert order == ["a", "m"]
        for _, release in reservations.values():
            release.set()
        await asyncio.gather(*(task for task, _ in reservations.values()))
        assert room._free == room._total

    run_test(main())


def test_a_cancelled_request_delays_no_other():
    async def main():
        room, order = capacity(), []
        small, large = room.demand(step(cores=1)), room.demand(step(cores=4))
        reservations = await start_reservations(
            room, order, ("a", small), ("L", large), ("b", small)
        )
        reservations["L"][0].cancel()
        await run_pending_tasks()
        assert order == ["a", "b"]
        reservations["b"][0].cancel()  # while it holds its resources
        reservations["a"][1].set()
        await asyncio.gather(*(task for task, _ in reservations.values()), return_exceptions=True)
        assert room._free == room._total
        assert not room._queues

    run_test(main())


def test_resources_granted_during_a_cancellation_are_released():
    async def main():
        room, order = capacity(cores=1), []
        core = room.demand(step(cores=1))
        reservations = await start_reservations(room, order, ("a", core), ("b", core))
        reservations["a"][1].set()
        while room._queues:  # until b is granted its resources; its task has not run since
            await asyncio.sleep(0)
        reservations["b"][0].cancel()
        await asyncio.gather(*(task for task, _ in reservations.values()), return_exceptions=True)
        assert room._free == room._total

    run_test(main())


def test_fractions_of_a_core_add_up():
    async def main():
        room = capacity(cores=1)
        tenth, whole = room.demand(step(cores=0.1)), room.demand(step(cores=1, ram_gb=0.3))
        for _ in range(3_000):
            async with room.reserve(tenth), room.reserve(tenth), room.reserve(tenth):
                pass
        async with room.reserve(whole):
            assert room._free.millicores == 0

    run_test(main())


def test_gpus_are_shared_in_order_up_to_their_number():
    async def main():
        room, order = capacity(gpus=2), []
        one, many = room.demand(step(gpus=1)), room.demand(step(gpus=8))
        assert (one, many) == (Demand(slots=1, gpus=1), Demand(slots=1, gpus=2))
        named = [("a", one), ("b", one), ("M", many), ("plain", room.demand(step()))]
        reservations = await start_reservations(room, order, *named)
        await run_pending_tasks()
        # The plain step needs a slot, and so does the step before it, which waits.
        assert order == ["a", "b"]
        reservations["a"][1].set()
        reservations["b"][1].set()
        await run_pending_tasks()
        assert order == ["a", "b", "M", "plain"]
        for task, release in reservations.values():
            release.set()
            await task

    run_test(main())


def test_gpus_are_counted_by_their_devices(tmp_path, monkeypatch):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "sda1"):
        (tmp_path / name).touch()
    monkeypatch.setattr(gpus, "DEVICE_FOLDER", tmp_path)
    assert ResourceAllocator.detect().demand(step(gpus=8)).gpus == 3
    monkeypatch.setattr(gpus, "DEVICE_FOLDER", tmp_path / "none")
    assert ResourceAllocator.detect().demand(step(gpus=8)).gpus == 1


def test_the_number_of_concurrent_chunks_is_limited_by_resources():
    room = capacity()
    assert room.chunks_at_once(step(cores=1.5)) == 2
    assert room.chunks_at_once(step(cores=1, ram_gb=4)) == 2
    assert room.chunks_at_once(step(cores=0.01)) == 400
    assert room.chunks_at_once(step(cores=500)) == 1
    assert room.chunks_at_once(step(gpus=1)) == 1
    assert room.chunks_at_once(step(cores=1, max_parallel=3)) == 3
    assert room.chunks_at_once(step(cores=1, max_parallel=100)) == 4


def test_plain_chunks_are_bounded_by_the_configuration(tmp_path):
    import dask.config

    with dask.config.set({"hyperplane.jobs.chunks_at_once": 5}):
        assert capacity().chunks_at_once(step()) == 5
        assert capacity().chunks_at_once(step(max_parallel=9)) == 9
        assert capacity().chunks_at_once(step(max_parallel=90)) == 16


def test_a_pool_sets_the_demand_of_a_step():
    pool = next(iter(config.pools().values()))
    room = capacity(cores=1_000, memory=1e15)
    demand = room.demand(step(pool=pool.name))
    assert demand.millicores == pool.allocatable_cores * 1000
    assert demand.memory == int(pool.allocatable_ram_gb * 1e9)
    assert room.demand(step(pool=pool.name), 2.0).memory == int(pool.allocatable_ram_gb * 2e9)


def test_eight_thousand_waiting_steps_cost_little():
    async def main():
        room, done = capacity(), []
        demands = [room.demand(step()), room.demand(step(cores=1)), room.demand(step(gpus=1))]

        async def unit(number):
            async with room.reserve(demands[number % 3]):
                await asyncio.sleep(0)
                done.append(number)

        await asyncio.gather(*(unit(number) for number in range(8_000)))
        assert sorted(done) == list(range(8_000))
        assert room._free == room._total

    # Seconds of the processor: 0.3, and far more than 10 if each looked at all others.
    began = time.process_time()
    run_test(main())
    assert time.process_time() - began < 10


def test_the_program_of_a_step_knows_its_memory(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(local.LocalProcess, "start", started.append)
    command = AttemptCommand((), {"A": "1"}, "", tmp_path / "attempt")

    def start(**resources):
        asyncio.run(local.LocalRunner({}, {}).start(command, step(**resources), 1.5))
        return dict(started.pop().environment)

    assert start(ram_gb=2) == {"A": "1", "HYPERPLANE_STEP_MEMORY": "3000000000"}
    assert start(cores=2) == {"A": "1"}
    pool = config.get_pool("16_16")
    memory = int(pool.allocatable_ram_gb * 1.5e9)
    assert start(pool="16_16") == {"A": "1", "HYPERPLANE_STEP_MEMORY": str(memory)}
