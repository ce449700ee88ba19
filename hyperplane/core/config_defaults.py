"""Register the shipped YAML files as Dask defaults.

The files of ``config/`` become defaults under ``hyperplane:`` in :mod:`dask.config` when the
package is imported. Override them as any Dask setting: with a YAML file in the Dask configuration
folder, an environment variable such as ``DASK_HYPERPLANE__MEMORY__PAUSE=0.85``, or
``dask.config.set``. The module is separate from :mod:`hyperplane.config` so that importing the
package stays cheap.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping
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
    "email.yaml",
    "tuning.yaml",
    "history.yaml",
    "progress.yaml",
    "runners.yaml",
)

#: Packages of Dask that hyperplane imports on first use, and the file of their defaults.
_DASK_PACKAGES = {
    "distributed": "distributed.yaml",
    "dask_jobqueue": "jobqueue.yaml",
    "dask_gateway": "gateway.yaml",
    "dask_kubernetes": "kubernetes.yaml",
}


def folder() -> Path:
    """Return the folder of the shipped files: in the wheel or at the root of a checkout."""
    package = Path(__file__).parents[1]
    wheel = package / "config_data"
    return wheel if wheel.is_dir() else package.parent / "config"


@functools.cache
def load_file(name: str) -> dict[str, Any]:
    """Return the content of a shipped file; it is cached, so callers must not change it."""
    return _load(folder() / name)


def register() -> None:
    """Add the shipped values to Dask's defaults; values that the user has set stay unchanged.

    The defaults of Dask's packages are added too, because defaults first loaded inside a
    ``with dask.config.set(...)`` block are lost at its end.
    """
    shipped = dask.config.merge(*map(load_file, FILES))
    for path, value in _list_replaced(dask.config.config, shipped):
        warnings.warn(
            f"the configuration has {path}: {value!r}, which is ignored; expected a mapping. "
            "Correct it in the files of dask.config.paths or in the variables DASK_...",
            stacklevel=2,
        )
    dask.config.update_defaults(dask.config.merge(*_load_dask_defaults(), shipped))


def _list_replaced(
    config: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the values that Dask replaces by defaults, because these are mappings."""
    for key, default in defaults.items():
        value = config.get(dask.config.canonical_name(key, dict(config)))
        if not isinstance(default, Mapping) or value is None:
            continue
        if isinstance(value, Mapping):
            yield from _list_replaced(value, default, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _load_dask_defaults() -> Iterator[dict[str, Any]]:
    for package, name in _DASK_PACKAGES.items():
        spec = None if package in sys.modules else importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            file = Path(spec.origin).with_name(name)
            if file.is_file():
                yield _load(file)


def _load(path: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with path.open(encoding="utf-8") as file:
        return dict(yaml.load(file, Loader=loader))  # noqa: S506 - both are safe loaders
