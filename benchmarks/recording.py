"""CPU and wall seconds of a graph of small tasks with and without its record, in turn.

    python -m benchmarks.recording [--tasks 10000] [--rounds 5]
    python -m benchmarks.recording --share [--block]

Counted are client, scheduler and worker processes, without the start and the end of the cluster.
``--share`` runs the graph once and prints the CPU seconds of the plugin that measures, with
``--block`` of the additional one of ``hyperplane.record``.
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


def run(tasks: int, recording: bool, block: bool = False) -> tuple[float, float]:
    """Run the graph on a new cluster of two processes; return its CPU and wall seconds."""
    ClusterGuards.plugins = _PLUGINS if recording else _plugins_without_usage  # type: ignore[method-assign]
    memory_plugins.ProcessUsage = ProcessUsage if recording else NoUsage  # type: ignore[misc]
    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(
            num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=1, engine="local",
            local_fit="exact", preflight=False,
        )
    )  # fmt: skip
    try:
        graph = make_graph(tasks)
        before = time.process_time() + sum(client.run(time.process_time).values())
        began = time.monotonic()
        with hyperplane.record("graph") if block else nullcontext():
            client.compute(graph).result()
        wall = time.monotonic() - began
        return time.process_time() + sum(client.run(time.process_time).values()) - before, wall
    finally:
        client.close()
        cluster.close()


def measure_share(tasks: int, block: bool) -> None:
    """Print the CPU seconds that the plugin of the scheduler takes, and those of the run."""
    spent = dict.fromkeys(_HOOKS, 0.0)

    def count(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*arguments, **options)
            finally:
                spent[name] += time.thread_time() - began

        return call

    monitor = BlockMonitor if block else UsageMonitor
    for name in _HOOKS:
        setattr(monitor, name, count(name, getattr(monitor, name)))
    total, wall = run(tasks, recording=True, block=block)
    texts = ", ".join(f"{name} {seconds:.3f}" for name, seconds in spent.items())
    counted = sum(spent.values())
    print(f"{counted:.2f} of {total:.1f} CPU s, {counted / total:.2%}, in {wall:.1f} s: {texts}")


def main() -> None:
    """Run with and without recording in turn, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", action="store_true", help="only the share of the plugin")
    parser.add_argument("--block", action="store_true", help="with --share: that of a block")
    arguments = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    if arguments.share:
        measure_share(arguments.tasks, arguments.block)
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
