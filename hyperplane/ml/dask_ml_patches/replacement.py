"""Replace a function of dask-ml wherever its modules have imported it."""

from __future__ import annotations

import sys
from typing import Any


def replace(module: Any, name: str, replacement: Any) -> None:
    """Set an attribute of a module, and of modules of dask-ml that have imported it by name."""
    original = getattr(module, name)
    setattr(module, name, replacement)
    for other_name, other in sys.modules.copy().items():
        if other_name.startswith("dask_ml.") and vars(other).get(name) is original:
            setattr(other, name, replacement)
