"""Prepare the forkserver before it is forked; imported only in the forkserver."""

from __future__ import annotations

import gc
import importlib
import json
import os
from multiprocessing import spawn
from typing import Any

from hyperplane.clusters.dask.local.forkserver import VARIABLE, ignore_interrupts
from hyperplane.guard.forks import WORKER_PROCESS


def _load(modules: list[str]) -> None:
    """Import modules; ignore errors, because the worker imports them again and reports them."""
    for name in ["distributed.nanny", "distributed.shuffle", *modules]:
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


def _prepare() -> None:
    ignore_interrupts()
    message = json.loads(os.environ.pop(VARIABLE))
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
