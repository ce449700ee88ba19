"""Gives Python programs of a Spark cluster the names of ``hyperplane_numpy_names``.

A ``sitecustomize`` of the user or of the distribution runs afterwards.
"""

import os
import sys

import hyperplane_numpy_names  # type: ignore[import-not-found]

hyperplane_numpy_names.install()

_path = sys.path[:]
sys.path[:] = [each for each in _path if each != os.path.dirname(__file__)]  # noqa: PTH120 - quick
_own = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - the next one
except ImportError as error:
    if error.name != "sitecustomize":
        raise
finally:
    sys.modules.setdefault(__name__, _own)  # Python reads it after this import
    # What the next one has added remains.
    sys.path[:] = [*_path, *(each for each in sys.path if each not in _path)]
