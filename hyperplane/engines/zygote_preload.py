"""What runs inside the zygote before it is forked. Imported there and nowhere else."""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import json
import os
import sys

from hyperplane.engines.zygote import VARIABLE


def _load(modules: list[str]) -> None:
    """Import modules; one that fails here fails in the worker too, where it is reported."""
    for name in ["distributed.nanny", "distributed.shuffle", *modules]:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 - see the docstring
            continue


def _have_main_already(path: str | None, name: str | None) -> None:
    """Let multiprocessing find the main module in place, so that it does not run it again."""
    main = sys.modules["__main__"]
    if path is not None:
        main.__file__ = path
    if name is not None:
        main.__spec__ = importlib.machinery.ModuleSpec(name, None)


def _prepare() -> None:
    note = json.loads(os.environ.pop(VARIABLE))
    if note["python_path"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = note["python_path"]
    gc.disable()  # imports make nothing to collect, and looking for it takes a fifth of the time
    _load(note["modules"])
    # Forked processes share the pages of these objects for as long as nobody writes to them.
    gc.freeze()
    gc.enable()
    _have_main_already(note["main_path"], note["main_name"])


if VARIABLE in os.environ:
    _prepare()
