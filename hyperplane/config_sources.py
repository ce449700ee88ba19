"""Where what is in force in the configuration came from: files, variables, the shipped defaults."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask.config

from hyperplane import defaults

#: What :func:`source_of` says of values that were set from Python, and how it begins of variables.
SET_FROM_PYTHON, SET_BY_VARIABLE = "dask.config.set", "environment variable"
#: What :func:`get_nested` finds where nothing is.
MISSING: Any = object()


def source_of(path: str) -> str:
    """What set a key, or the nearest parent of a key that is missing.

    Parameters
    ----------
    path : str
        Of the key, with dots.

    Returns
    -------
    str
        The path of a file, ``environment variable ...`` or ``dask.config.set``.

    Examples
    --------
    >>> source_of("hyperplane.memory.pause").endswith("memory.yaml")
    True
    """
    parts = path.split(".")
    now = get_nested(dask.config.config, parts)
    while now is MISSING and len(parts) > 1:
        parts = parts[:-1]
        now = get_nested(dask.config.config, parts)
    for source, content in _iterate_sources(parts):
        if _sets_value(get_nested(content, parts), now):
            return source
    return SET_FROM_PYTHON


def _iterate_sources(parts: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Everything that is read into the configuration, the strongest first."""
    variable = "DASK_" + "__".join(parts).upper() + "__"
    set_ = [
        name
        for name in sorted(os.environ)
        if name.startswith("DASK_")
        and (variable.startswith(f"{name.upper()}__") or name.upper().startswith(variable))
    ]
    yield f"{SET_BY_VARIABLE} {', '.join(set_)}", dask.config.collect_env()
    paths = tuple(map(str, dask.config.paths))
    yield from reversed(_read_files(paths, tuple(_file_states(paths))))
    for name in defaults.FILES:
        yield str(defaults.folder() / name), defaults.load_file(name)


@functools.lru_cache(maxsize=4)
def _read_files(
    paths: tuple[str, ...], state: tuple[tuple[str, int, int], ...]
) -> list[tuple[str, Mapping[str, Any]]]:
    """Files of the configuration, the weakest first; read again when one has changed.

    Each source of a value is asked for by itself, and reading what packages install takes 40 ms
    a file.
    """
    del state
    files = dask.config.collect_yaml(paths, return_paths=True)
    return [(str(file), content) for file, content in files]


def _file_states(paths: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    """Name, time of change and size of each file in these folders, and of those named."""
    for path in paths:
        with contextlib.suppress(OSError):  # Dask passes over what is missing or unreadable
            files = sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]
            for file in files:
                status = file.stat()
                yield str(file), status.st_mtime_ns, status.st_size


def _sets_value(value: object, now: object) -> bool:
    """Whether a value, or something in it, is what is in force now."""
    if isinstance(value, Mapping) and isinstance(now, Mapping):
        return any(_sets_value(value[key], now.get(key, MISSING)) for key in value)
    return value is not MISSING and value == now


def get_nested(content: object, parts: list[str]) -> Any:
    """What stands at a path in nested mappings; an object of no meaning where nothing does."""
    for part in parts:
        if not isinstance(content, Mapping):
            return MISSING
        content = {str(key).replace("-", "_"): value for key, value in content.items()}.get(
            part.replace("-", "_"), MISSING
        )
    return content


def with_underscores(section: Mapping[Any, Any], deep: bool = True) -> dict[str, Any]:
    """A section with ``_`` for ``-`` in its keys, which are one and the same to Dask."""
    found = {str(key).replace("-", "_"): value for key, value in section.items()}
    inner = {key: value for key, value in found.items() if deep and isinstance(value, Mapping)}
    return {**found, **{key: with_underscores(value) for key, value in inner.items()}}
