"""The shipped YAML files as Dask defaults.

The files of ``config/`` become defaults under ``hyperplane:`` in :mod:`dask.config` when the
package is imported. They can be overridden in the three ways that every Dask user knows: a YAML
file in the Dask configuration folder, a variable such as
``DASK_HYPERPLANE__MEMORY__PAUSE=0.85``, or ``dask.config.set``. This module is apart from
:mod:`hyperplane.config` so that importing the package stays cheap.
"""

from __future__ import annotations

import functools
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


def folder() -> Path:
    """Where the shipped files are: in the wheel beside the code, in a checkout at its top."""
    package = Path(__file__).parent
    wheel = package / "config_data"
    return wheel if wheel.is_dir() else package.parent / "config"


@functools.cache
def load_file(name: str) -> dict[str, Any]:
    """One of the shipped files; read once, not to be changed."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with (folder() / name).open(encoding="utf-8") as file:
        return dict(yaml.load(file, Loader=loader))  # noqa: S506 - both are safe loaders


def register() -> None:
    """Make the shipped values defaults; what the user has set stays as it is."""
    dask.config.update_defaults(dask.config.merge(*map(load_file, FILES)))
