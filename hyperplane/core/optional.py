"""Optional packages: whether they are installed, and their import on first use."""

from __future__ import annotations

import importlib
import importlib.util
from importlib.machinery import NamespaceLoader
from types import ModuleType

from hyperplane.core.errors import MissingPackage


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it.

    Examples
    --------
    >>> is_installed("json"), is_installed("no_such_module")
    (True, False)
    """
    spec = importlib.util.find_spec(module)
    # A folder of that name without a package, such as the one that Ray has in /tmp, does not count.
    return spec is not None and not isinstance(getattr(spec, "loader", None), NamespaceLoader)


def need(module: str, extra: str) -> ModuleType:
    """Import an optional module, or raise MissingPackage with the extra that installs it.

    An installed module that fails to import for another reason raises its own error.

    Examples
    --------
    >>> need("json", extra="none").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingPackage(package, extra) from error
