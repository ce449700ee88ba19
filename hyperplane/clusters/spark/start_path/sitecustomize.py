"""Gives Python programs of a Spark cluster the names of ``numpy_names.py``; Python imports it.

The folder of this file is in ``PYTHONPATH`` of programs and executors. A ``sitecustomize`` of the
user or of the distribution runs afterwards.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_FOLDER = Path(__file__).parent


def _run(name, spec):
    """Run a module, and return it."""
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_NAME = "hyperplane_numpy_names"
_run(
    _NAME, importlib.util.spec_from_file_location(_NAME, _FOLDER.with_name("numpy_names.py"))
).install()

_next = PathFinder.find_spec(__name__, [each for each in sys.path if Path(each) != _FOLDER])
if _next is not None and _next.loader is not None:
    _run(__name__, _next)
