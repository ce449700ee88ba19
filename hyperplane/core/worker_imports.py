"""Modules that worker processes should import early, because this process uses them."""

from __future__ import annotations

import sys

#: Packages whose import takes seconds, and which tasks need if this process has loaded them.
_SLOW_PACKAGES = ("sklearn",)


def list_loaded_modules() -> list[str]:
    """Return the public modules of slow packages that this process has loaded.

    Examples
    --------
    >>> import sklearn.svm
    >>> "sklearn.svm" in list_loaded_modules(), "sklearn.svm._base" in list_loaded_modules()
    (True, False)
    """
    # A copy, made in one step: a list of the items is not, because the garbage collector may run
    # between two of them, and a finalizer may import a module.
    loaded = sys.modules.copy()
    return sorted(
        name
        for name, module in loaded.items()
        if module is not None
        and name.partition(".")[0] in _SLOW_PACKAGES
        and name.count(".") <= 1
        and "._" not in name
    )
