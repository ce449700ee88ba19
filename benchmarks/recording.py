"""CPU and wall seconds of a graph of small tasks with and without its record, in turn.

    python -m benchmarks.recording [--tasks 10000] [--rounds 5]
    python -m benchmarks.recording --share [--block]
    python -m benchmarks.recording --wall [--rounds 20]

Counted are client, scheduler and worker processes, without the start and the end of the cluster.
``--wall`` switches the recording of one cluster off and on between runs of the graph, which differ
less than those of two clusters, and prints the medians and the least times. On a busy machine, run
it as ``chrt -f 1 python -m ...``, with a pause in which other programs run. ``--share``
prints the CPU seconds of the plugin that measures, and the longest time by which it can make the
run longer, whatever else the machine does; with ``--block`` those of the additional plugin of
``hyperplane.record``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median
from typing import Any

import dask

import hyperplane
from hyperplane.clusters.dask.cluster_guards import ClusterGuards
from hyperplane.guard import memory_plugins
from hyperplane.guard.block_usage import BlockMonitor
from hyperplane.guard.process_usage import ProcessUsage
from hyperplane.guard.usage import UsageMonitor

_PLUGINS = ClusterGuards.plugins
_HOOKS = (
    "transition", "update_graph", "measure", "_sample", "log_event", "add_worker", "remove_worker",
)  # fmt: skip


class NoUsage(ProcessUsage):
    """The plugin of workers, without an effect."""

    def setup(self, worker: Any) -> None:
        """Do nothing."""

    def teardown(self, worker: Any) -> None:
        """Do nothing."""


def _plugins_without_usage(self: ClusterGuards, close: Any, warn: Any) -> list[Any]:
    found = _PLUGINS(self, close, warn)
    return [plugin for plugin in found if not isinstance(plugin, UsageMonitor)]


def _increment(number: int) -> int:
    return number + 1


def _add(numbers: list[int]) -> int:
    return sum(numbers)


def make_graph(tasks: int) -> Any:
    """Return a sum of sums of ten numbers each."""
    parts = [dask.delayed(_increment)(number) for number in range(tasks * 9 // 10)]
    sums = [dask.delayed(_add)(parts[start : start + 10]) for start in range(0, len(parts), 10)]
    return dask.delayed(_add)(sums)


def _start() -> Any:
    return hyperplane.start(
        hyperplane.plan_cluster(
            num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=1, engine="local",
            local_fit="exact", preflight=False,
        )
    )  # fmt: skip


def run(
    tasks: int, recording: bool, block: bool = False, loop: list[float] | None = None
) -> tuple[float, float]:
    """Run the graph on a new cluster of two processes; return its CPU and wall seconds.

    The CPU seconds of the scheduler's thread, which is that of the client, are added to ``loop``.
    """
    ClusterGuards.plugins = _PLUGINS if recording else _plugins_without_usage  # type: ignore[method-assign]
    memory_plugins.ProcessUsage = ProcessUsage if recording else NoUsage  # type: ignore[misc]
    client, cluster = _start()
    try:
        graph = make_graph(tasks)
        before = time.process_time() + sum(client.run(time.process_time).values())
        loop_before = client.run_on_scheduler(_read_thread_time)
        began = time.monotonic()
        with hyperplane.record("graph") if block else nullcontext():
            client.compute(graph).result()
        wall = time.monotonic() - began
        if loop is not None:
            loop.append(client.run_on_scheduler(_read_thread_time) - loop_before)
        return time.process_time() + sum(client.run(time.process_time).values()) - before, wall
    finally:
        client.close()
        cluster.close()


def measure_share(tasks: int, rounds: int, block: bool) -> None:
    """Print the CPU seconds that the plugin of the scheduler takes, of all and of its thread."""
    spent, clock = dict.fromkeys(_HOOKS, 0.0), [0.0]

    def count(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*arguments, **options)
            finally:
                ended = time.thread_time()
                # The clock takes as long as a short call of the plugin.
                empty = time.thread_time() - ended
                spent[name] += ended - began - empty
                clock[0] += 3 * empty

        return call

    monitor = BlockMonitor if block else UsageMonitor
    for name in _HOOKS:
        setattr(monitor, name, count(name, getattr(monitor, name)))
    shares, bounds = [], []
    for _ in range(rounds):
        spent.update(dict.fromkeys(_HOOKS, 0.0))
        clock[0] = 0.0
        loop: list[float] = []
        total, wall = run(tasks, recording=True, block=block, loop=loop)
        texts = ", ".join(f"{name} {seconds:.3f}" for name, seconds in spent.items())
        counted = sum(spent.values())
        total, loop_seconds = total - clock[0], loop[0] - clock[0]
        shares.append(counted / total)
        # The thread of the scheduler does one thing at a time: if it never waits, the run takes
        # longer by what the plugin takes of it, and otherwise by less.
        bounds.append(counted / (loop_seconds - counted))
        print(
            f"{counted:.2f} of {total:.1f} CPU s, {shares[-1]:.2%}, and of {loop_seconds:.1f} of "
            f"the scheduler's thread, {bounds[-1]:+.2%}, in {wall:.1f} s: {texts}",
            flush=True,
        )
    print(
        f"medians of {rounds}: {median(shares):.2%} of the CPU, wall at most {median(bounds):+.2%}"
    )


def _read_thread_time() -> float:
    """Return the CPU seconds of this thread; called by the scheduler, of that of its loop."""
    return time.thread_time()


def _drain(dask_scheduler: Any) -> int:
    """Return the number of tasks that the scheduler has."""
    return len(dask_scheduler.tasks)


def _switch_worker(on: bool, dask_worker: Any) -> None:
    """Add the measurements of a worker's process to its heartbeats, or remove them."""
    plugin = ProcessUsage()
    (plugin.setup if on else plugin.teardown)(dask_worker)


def measure_wall(tasks: int, rounds: int, pause: float) -> None:
    """Run the graph on one cluster with and without recording in turn, and print wall seconds."""
    is_on = [True]

    def make_optional(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return method(*arguments, **options) if is_on[0] else None

        return call

    for name in _HOOKS:
        setattr(UsageMonitor, name, make_optional(getattr(UsageMonitor, name)))
    client, cluster = _start()
    taken: dict[bool, list[float]] = {False: [], True: []}
    try:
        for number in range(rounds + 1):
            # The first round is not counted; the order alternates, so that a trend cancels.
            for on in ((False, True), (True, False))[number % 2]:
                while client.run_on_scheduler(_drain):
                    time.sleep(0.05)
                time.sleep(pause)
                is_on[0] = on
                client.run(_switch_worker, on)
                graph = make_graph(tasks)
                began = time.monotonic()
                client.compute(graph).result()
                taken[on] += [time.monotonic() - began] if number else []
            if number:
                print(f"{number} {taken[False][-1]:.3f} s, {taken[True][-1]:.3f} s", flush=True)
    finally:
        is_on[0] = True
        client.run(_switch_worker, True)  # the end of the cluster asks workers
        client.close()
        cluster.close()
    for name, choose in (("median", median), ("least", min)):
        without, recorded = choose(taken[False]), choose(taken[True])
        ratio = recorded / without - 1
        print(f"{name} {without:.3f} s without, {recorded:.3f} s with: {ratio:+.2%}")
    ratios = [one / two - 1 for two, one in zip(taken[False], taken[True], strict=True)]
    print(f"median of the ratios of {rounds} pairs: {median(ratios):+.2%}")


def main() -> None:
    """Run with and without recording in turn, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", action="store_true", help="only the share of the plugin")
    parser.add_argument("--wall", action="store_true", help="wall seconds on one cluster")
    parser.add_argument("--pause", type=float, default=0.0, help="with --wall: seconds before runs")
    parser.add_argument("--block", action="store_true", help="with --share: that of a block")
    arguments = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    if arguments.share:
        measure_share(arguments.tasks, arguments.rounds, arguments.block)
        return
    if arguments.wall:
        measure_wall(arguments.tasks, arguments.rounds, arguments.pause)
        return
    taken: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    run(1000, recording=True)
    for number in range(arguments.rounds):
        for recording in (False, True):
            cpu, wall = run(arguments.tasks, recording)
            taken[recording].append((cpu, wall))
            name = "with" if recording else "without"
            print(f"{number} {name} {cpu:.2f} CPU s, {wall:.2f} s", flush=True)
    for place, unit in enumerate(("CPU s", "s")):
        without, recorded = (median(each[place] for each in taken[key]) for key in (False, True))
        ratio = recorded / without - 1
        print(f"median {without:.2f} {unit} without, {recorded:.2f} with: {ratio:+.1%}")


if __name__ == "__main__":
    main()
