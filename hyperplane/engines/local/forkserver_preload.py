"""What runs inside the forkserver before it is forked. Imported there and nowhere else."""

from __future__ import annotations

import gc
import importlib
import json
import os
from multiprocessing import spawn
from typing import Any

from hyperplane.engines.local.forkserver import VARIABLE, ignore_interrupts
from hyperplane.guard.forks import WORKER_PROCESS


def _load(modules: list[str]) -> None:
    """Import modules; one that fails here fails in the worker too, where it is reported."""
    for name in ["distributed.nanny", "distributed.shuffle", *modules]:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 - see the docstring
            continue


def _skip_main_module_in_workers() -> None:
    """Keep worker processes of Dask from running the program's main module again.

    Those that may run it are asked to later, see :mod:`process_state`. Only workers: what else the
    program forks from here may need functions of its main module, which do not travel by value
    there.
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
    gc.disable()  # imports make nothing to collect, and looking for it takes a fifth of the time
    _load(message["modules"])
    # Forked processes share the pages of these objects for as long as nobody writes to them.
    gc.freeze()
    gc.enable()
    _skip_main_module_in_workers()


if VARIABLE in os.environ:
    _prepare()
