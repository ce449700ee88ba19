"""hyperplane: from a notebook to a right-sized Dask cluster to a production job.

>>> import hyperplane
>>> hyperplane.size_cluster("100GB", "groupby").nodes
8
"""

import importlib
from typing import Any

import lazy_loader

from hyperplane.core import config_defaults as _defaults
from hyperplane.core.dask_internals import workarounds as _workarounds

__version__ = "0.2.0"

# Public modules that a star import leaves out, because their names are common.
_OTHER_MODULES = {"errors", "notebook_common", "utils"}

# Public modules that are imported by themselves in programs, and here, too, on first use.
_SEPARATE_MODULES = {"asl", "ml", "orca", "ray_common", "spark"}

# The names in __init__.pyi are imported on first use, so that importing the package stays cheap.
_get_name, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in _names if name not in _OTHER_MODULES]

_defaults.register()
_workarounds.install_workarounds()


def __getattr__(name: str) -> Any:
    if name in _SEPARATE_MODULES:
        return importlib.import_module(f"hyperplane.{name}")
    try:
        return _get_name(name)
    except AttributeError as error:
        if name.startswith("_") or name in _names:
            raise
        from hyperplane.core.public_calls import nearest

        advice = f"; did you mean {' or '.join(near)}?" if (near := nearest(name, _names)) else ""
        text = f"module 'hyperplane' has no attribute {name!r}{advice}"
        raise AttributeError(text) from error.__cause__


def __dir__() -> list[str]:
    return sorted([*_names, "__version__"])
