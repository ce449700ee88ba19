"""Names of engines: a platform's name for Dask, ``<framework>:<platform>`` for other frameworks."""

from __future__ import annotations

#: The framework of engines whose name has no colon.
DASK = "dask"


def framework_of(engine: str) -> str:
    """Return the framework of an engine.

    Examples
    --------
    >>> framework_of("slurm"), framework_of("ray:slurm")
    ('dask', 'ray')
    """
    framework, colon, _ = engine.partition(":")
    return framework if colon else DASK


def platform_of(engine: str) -> str:
    """Return the platform of an engine.

    Examples
    --------
    >>> platform_of("slurm"), platform_of("ray:slurm")
    ('slurm', 'slurm')
    """
    return engine.rpartition(":")[2]
