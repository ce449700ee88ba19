"""Names that NumPy 2 has removed and that pyspark 3.5 uses, in programs and on executors.

Without them ``pyspark.pandas`` cannot be imported, and the checks of parameters of ``pyspark.ml``
end with an AttributeError. They are added to NumPy when one of these modules is imported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

#: Modules of pyspark that use the names.
_MODULES = frozenset({"pyspark.ml.param", "pyspark.pandas"})
#: The removed names, and those that NumPy 1 and 2 have.
_NAMES = {"NaN": "nan", "float_": "float64", "string_": "bytes_", "unicode_": "str_"}
_FOLDER = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is no module of Python's start


class NumPyNamesFinder:
    """Adds the names before a module of pyspark that uses them is imported; it finds no module."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Add the names if they are missing."""
        del path, target
        if name in _MODULES:
            import numpy as np

            for removed, present in _NAMES.items():
                if not hasattr(np, removed):
                    setattr(np, removed, getattr(np, present))


def install() -> None:
    """Add the names in this process when they are needed; safe to call repeatedly."""
    # This file may be loaded under two names.
    if not any(type(each).__name__ == NumPyNamesFinder.__name__ for each in sys.meta_path):
        sys.meta_path.insert(0, NumPyNamesFinder())


def extend_python_path(environment: Mapping[str, str | None]) -> str:
    """Return the value of ``PYTHONPATH`` with which Python programs have the names, too."""
    former = (environment.get("PYTHONPATH") or "").split(os.pathsep)
    return os.pathsep.join([_FOLDER, *(each for each in former if each not in {"", _FOLDER})])


def restore_python_path(environment: MutableMapping[str, str]) -> None:
    """Remove what :func:`extend_python_path` has added."""
    parts = environment.get("PYTHONPATH", "").split(os.pathsep)
    left = [each for each in parts if each not in {"", _FOLDER}]
    if left:
        environment["PYTHONPATH"] = os.pathsep.join(left)
    else:
        environment.pop("PYTHONPATH", None)
