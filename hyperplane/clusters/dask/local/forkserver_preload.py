"""Prepare the forkserver before it is forked; imported only in the forkserver."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import spawn
from typing import Any

import psutil

from hyperplane.clusters.dask import parent_death
from hyperplane.clusters.dask.local.forkserver import VARIABLE, ignore_interrupts
from hyperplane.clusters.local_nodes.node_program import adopt_descendants
from hyperplane.guard.forks import WORKER_PROCESS

#: Modules that each worker process imports when it starts.
_WORKER_MODULES = (
    "distributed.http.health",
    "distributed.http.statics",
    "distributed.http.worker.prometheus.core",
    "distributed.nanny",
    "distributed.shuffle",
    "email.policy",  # of the metadata of packages
    "hyperplane.clusters.dask.local.process_state",
    "hyperplane.clusters.dask.log_filters",
    "hyperplane.clusters.dask.worker_memory",
    "hyperplane.core.dask_internals.actor_answers",
    "hyperplane.core.dask_internals.folders",
    "hyperplane.core.dask_internals.list_messages",
    "hyperplane.core.dask_internals.message_batches",
    "hyperplane.core.dask_internals.span_limit",
    "hyperplane.guard.memory_recorder",
    "hyperplane.guard.process_usage",
    "hyperplane.guard.same_user",
    "hyperplane.guard.worker_folders",
    "multiprocessing.popen_forkserver",
    "multiprocessing.synchronize",
    "tornado.platform.asyncio",
)
#: Signal of the kernel at the end of the owner, which nothing else uses during the imports.
_OWNER_ENDED = signal.SIGUSR2
#: Seconds in which the processes of a forkserver whose owner has ended are killed.
_KILL_SECONDS = 5.0


def _load(modules: list[str]) -> None:
    """Import modules; ignore errors, because the worker imports them again and reports them."""
    for name in [*_WORKER_MODULES, *modules]:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 - see the docstring
            continue


def _skip_main_module_in_workers() -> None:
    """Keep Dask's worker processes from running the program's main module again.

    Workers that may run it do so later, see :mod:`process_state`. Other processes that the program
    starts from this forkserver still run the main module, because their functions are pickled by
    reference.
    """
    original_prepare = spawn.prepare

    def prepare(data: dict[str, Any]) -> None:
        if data.get("name") == WORKER_PROCESS:
            data = {key: data[key] for key in data if not key.startswith("init_main_from_")}
        original_prepare(data)

    vars(spawn)["prepare"] = prepare


@contextmanager
def _ending_with(owner: int) -> Iterator[None]:
    """End this process if its owner ends during the block.

    The forkserver notices the end of its owner by a pipe, but not while it imports modules, which
    takes ten seconds on a busy machine. The kernel's signal comes also at the end of the thread
    that has started this process, so it does not end it without a check.
    """

    def check_owner(*_: object) -> None:
        if os.getppid() != owner:
            os._exit(1)

    before = signal.signal(_OWNER_ENDED, check_owner)
    try:
        parent_death.request_signal(_OWNER_ENDED)
        check_owner()
        yield
    finally:
        parent_death.request_signal(0)
        signal.signal(_OWNER_ENDED, before)


def _end_programs_with_owner() -> None:
    """Kill the programs that tasks have started when the owner of this forkserver has ended.

    They would outlive the workers. Without an owner the forkserver exits; at the end of the last
    cluster a signal ends it, and such programs go on.
    """
    adopt_descendants()  # of workers that have ended
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
    atexit.register(_kill_descendants, os.getpid())


def _kill_descendants(forkserver: int) -> None:
    if os.getpid() != forkserver:
        return  # a worker
    deadline = time.monotonic() + _KILL_SECONDS
    while (every := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        for each in every:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(every, 1.0)


def _prepare() -> None:
    ignore_interrupts()
    message = json.loads(os.environ.pop(VARIABLE))
    with _ending_with(message["owner"]):
        _prepare_forks(message)
    _end_programs_with_owner()


def _prepare_forks(message: dict[str, Any]) -> None:
    if message["python_path"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = message["python_path"]
    gc.disable()  # collections during the imports free nothing and take a fifth of the time
    _load(message["modules"])
    # Frozen objects are not written by the collector, so forked processes share their pages.
    gc.freeze()
    gc.enable()
    _skip_main_module_in_workers()


if VARIABLE in os.environ:
    _prepare()
