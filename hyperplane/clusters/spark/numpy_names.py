"""Names that NumPy 2 has removed and that pyspark 3.5 uses, in programs and on executors.

Without them ``pyspark.pandas`` cannot be imported, and the checks of parameters of ``pyspark.ml``
end with an AttributeError. They are added to NumPy when one of these modules is imported.

``start_path/sitecustomize.py`` loads this file by its path: it must not import this package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

#: Modules of pyspark that use the names.
_MODULES = frozenset({"pyspark.ml.param", "pyspark.pandas"})
#: The removed names, and those that NumPy 1 and 2 have.
_NAMES = {"NaN": "nan", "float_": "float64", "string_": "bytes_", "unicode_": "str_"}
#: The folder with ``sitecustomize.py``, which Python runs at its start.
_START_PATH = str(Path(__file__).with_name("start_path"))


class NumPyNamesFinder(MetaPathFinder):
    """Adds the names before a module of pyspark that uses them is imported; it finds no module."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Add the names if they are missing."""
        del path, target
        if name in _MODULES:
            import numpy as np

            for removed, present in _NAMES.items():
                if not hasattr(np, removed):
                    setattr(np, removed, getattr(np, present))


def install() -> None:
    """Add the names in this process when they are needed; safe to call repeatedly."""
    if not any(type(each).__name__ == NumPyNamesFinder.__name__ for each in sys.meta_path):
        sys.meta_path.insert(0, NumPyNamesFinder())


def extend_python_path(environment: Mapping[str, str | None]) -> str:
    """Return the value of ``PYTHONPATH`` with which Python programs have the names, too."""
    former = (environment.get("PYTHONPATH") or "").split(os.pathsep)
    return os.pathsep.join(
        [_START_PATH, *(each for each in former if each not in {"", _START_PATH})]
    )
