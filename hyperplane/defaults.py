"""The shipped YAML files as Dask defaults.

The files of ``config/`` become defaults under ``hyperplane:`` in :mod:`dask.config` when the
package is imported. They can be overridden in the three ways that every Dask user knows: a YAML
file in the Dask configuration folder, a variable such as
``DASK_HYPERPLANE__MEMORY__PAUSE=0.85``, or ``dask.config.set``. This module is apart from
:mod:`hyperplane.config` so that importing the package stays cheap.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import yaml

FILES = (
    "pools.yaml",
    "gpu_pools.yaml",
    "sizing.yaml",
    "memory.yaml",
    "engines.yaml",
    "jobs.yaml",
    "services.yaml",
    "slack.yaml",
    "tuning.yaml",
)

#: Packages of Dask that are imported on first use here, with the file of their own defaults.
_DASK_PACKAGES = {
    "distributed": "distributed.yaml",
    "dask_jobqueue": "jobqueue.yaml",
    "dask_gateway": "gateway.yaml",
    "dask_kubernetes": "kubernetes.yaml",
}


def folder() -> Path:
    """Where the shipped files are: in the wheel beside the code, in a checkout at its top."""
    package = Path(__file__).parent
    wheel = package / "config_data"
    return wheel if wheel.is_dir() else package.parent / "config"


@functools.cache
def load_file(name: str) -> dict[str, Any]:
    """One of the shipped files; read once, not to be changed."""
    return _load(folder() / name)


def register() -> None:
    """Make the shipped values defaults; what the user has set stays as it is.

    Those of Dask's packages are loaded now, too: defaults that are first loaded inside of a
    ``with dask.config.set(...)`` are gone when the block ends.
    """
    dask.config.update_defaults(dask.config.merge(*_load_dask_defaults(), *map(load_file, FILES)))


def _load_dask_defaults() -> Iterator[dict[str, Any]]:
    for package, name in _DASK_PACKAGES.items():
        found = None if package in sys.modules else importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            file = Path(found.origin).with_name(name)
            if file.is_file():
                yield _load(file)


def _load(path: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with path.open(encoding="utf-8") as file:
        return dict(yaml.load(file, Loader=loader))  # noqa: S506 - both are safe loaders
