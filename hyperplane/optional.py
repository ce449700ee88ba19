"""Optional packages, imported only when somebody needs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from hyperplane.errors import MissingPackage


def need(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra of hyperplane brings it.

    Parameters
    ----------
    module : str
        Dotted name of the module.
    extra : str
        The extra in ``pyproject.toml`` that installs it.

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    MissingPackage
        When the package is not installed. A module that is there but fails to import for
        another reason raises its own error.

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
