"""Source of each configuration value: a file, an environment variable or Python code."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask.config

from hyperplane.core import config_defaults
from hyperplane.core.errors import ConfigError, Fault

#: Result of :func:`source_of` for values set in Python, and its prefix for environment variables.
SET_FROM_PYTHON, SET_BY_VARIABLE = "dask.config.set", "environment variable"
#: Result of :func:`get_nested` for a missing key.
MISSING: Any = object()


def source_of(path: str) -> str:
    """Return the source of a dotted key, or of its nearest parent if the key is missing.

    The result is the path of a file, ``environment variable ...`` or ``dask.config.set``.

    Examples
    --------
    >>> source_of("hyperplane.memory.pause").endswith("memory.yaml")
    True
    """
    parts = path.split(".")
    current = get_nested(dask.config.config, parts)
    while current is MISSING and len(parts) > 1:
        parts = parts[:-1]
        current = get_nested(dask.config.config, parts)
    for source, content in _iterate_sources(parts):
        if _sets_value(get_nested(content, parts), current):
            return source
    return SET_FROM_PYTHON


def get_section(path: str) -> Any:
    """Return the value of a dotted key of the configuration.

    Raises
    ------
    ConfigError
        If a section that should contain the key is not a mapping.
    """
    parts = path.split(".")
    for count in range(1, len(parts)):
        parent = ".".join(parts[:count])
        section = dask.config.get(parent)
        if not isinstance(section, Mapping):
            allowed = f"a mapping with the key {parts[count]}"
            raise ConfigError([Fault(parent, repr(section), allowed, source=source_of(parent))])
    return dask.config.get(path)


def _iterate_sources(parts: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and content of each configuration source, highest precedence first."""
    variable = "DASK_" + "__".join(parts).upper() + "__"
    variables = [
        name
        for name in sorted(os.environ)
        if name.startswith("DASK_")
        and (variable.startswith(f"{name.upper()}__") or name.upper().startswith(variable))
    ]
    yield f"{SET_BY_VARIABLE} {', '.join(variables)}", dask.config.collect_env()
    paths = tuple(map(str, dask.config.paths))
    yield from reversed(_read_files(paths, tuple(_file_states(paths))))
    for name in config_defaults.FILES:
        yield str(config_defaults.folder() / name), config_defaults.load_file(name)


@functools.lru_cache(maxsize=4)
def _read_files(
    paths: tuple[str, ...], state: tuple[tuple[str, int, int], ...]
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return names and contents of the configuration files, lowest precedence first.

    Cached until a file changes (``state``): reading takes 40 ms a file, and callers look up one key
    at a time.
    """
    del state
    files = dask.config.collect_yaml(paths, return_paths=True)
    return [(str(file), content) for file, content in files]


def _file_states(paths: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    """Yield name, modification time and size of each file in or at these paths."""
    for path in paths:
        with contextlib.suppress(OSError):  # Dask ignores missing and unreadable files
            files = sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]
            for file in files:
                status = file.stat()
                yield str(file), status.st_mtime_ns, status.st_size


def _sets_value(value: object, current: object) -> bool:
    """Return whether a value, or a value nested in it, equals the current one."""
    if isinstance(value, Mapping) and isinstance(current, Mapping):
        return any(_sets_value(value[key], current.get(key, MISSING)) for key in value)
    return value is not MISSING and value == current


def get_nested(content: object, parts: list[str]) -> Any:
    """Return the value at a path of keys in nested mappings, or MISSING."""
    for part in parts:
        if not isinstance(content, Mapping):
            return MISSING
        content = {str(key).replace("-", "_"): value for key, value in content.items()}.get(
            part.replace("-", "_"), MISSING
        )
    return content


def with_underscores(section: Mapping[Any, Any], deep: bool = True) -> dict[str, Any]:
    """Replace ``-`` by ``_`` in the keys of a section; Dask treats both as equal."""
    renamed = {str(key).replace("-", "_"): value for key, value in section.items()}
    nested = {key: value for key, value in renamed.items() if deep and isinstance(value, Mapping)}
    return {**renamed, **{key: with_underscores(value) for key, value in nested.items()}}
