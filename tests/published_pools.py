"""The pools that the platform documents."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import dask.config

#: Name, alias, nominal cores and GB, allocatable cores and GB.
PUBLISHED_POOLS = [
    ("8_8", "hyperplane-small", 8, 8, 7.0, 5.0),
    ("8_16", "hyperplane-small-mid-mem", 8, 16, 7.5, 12.0),
    ("8_64", "hyperplane-small-high-mem", 8, 64, 7.5, 58.0),
    ("4_32", "hyperplane-xs-high-mem", 4, 32, 3.5, 7.0),
    ("16_16", "hyperplane-med", 16, 16, 15.0, 12.0),
    ("16_32", "hyperplane-med-mid-mem", 16, 32, 15.0, 27.0),
    ("16_128", "hyperplane-med-high-mem", 16, 128, 15.0, 110.0),
    ("32_32", "hyperplane-large", 32, 32, 28.0, 27.0),
    ("96_768", "hyperplane-xxl-high-mem", 96, 768, 94.0, 675.0),
]


def only_published_pools() -> AbstractContextManager[Any]:
    """Remove all other pools from the configuration, for tests of the rules that choose one."""
    keys = ("alias", "cores", "ram_gb", "allocatable_cores", "allocatable_ram_gb")
    pools = {f"pool_{name}": dict(zip(keys, rest, strict=True)) for name, *rest in PUBLISHED_POOLS}
    return dask.config.set({"hyperplane.pools": pools})
