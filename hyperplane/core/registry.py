"""Registries of classes by name, such as engines and formats, imported when first used."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, Generic, TypeVar

from hyperplane.core.errors import Fault, RequestError

Registered = TypeVar("Registered")


@dataclass(frozen=True)
class Registry(Generic[Registered]):
    """Classes by name, imported when they are first used.

    Other packages add classes with entry points. They cannot replace a built-in class: a built-in
    name always means the class of this package.

    Parameters
    ----------
    argument : str
        The argument whose value is a name, for messages: ``"engine"``, ``"runner"``.
    group : str
        Group of the entry points of other packages.
    built_in : mapping of str to str
        Name -> ``"package.module:Class"``.
    other_values : tuple of str
        Values of the argument that name no class, such as ``"auto"``, for messages.

    Examples
    --------
    >>> pools = Registry("pool", "example.pools", {"small": "hyperplane.spec.pool:PoolSpec"})
    >>> pools.names()
    ['small']
    >>> pools.load("small").__name__
    'PoolSpec'
    """

    argument: str
    group: str
    built_in: Mapping[str, str]
    other_values: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Return all names, built-in ones first."""
        return [*self.built_in, *(point.name for point in self._entry_points())]

    def load(self, name: Any) -> type[Registered]:
        """Return the class of a name.

        Raises
        ------
        RequestError
            If there is no such name, with the nearest ones, or if the class of another package
            cannot be imported.
        """
        if not isinstance(name, str):
            allowed = "a name, as text: " + ", ".join(self._allowed())
            raise RequestError([Fault(self.argument, repr(name)[:80], allowed)])
        if name in self.built_in:
            built_in: type[Registered] = _import_class(self.built_in[name])
            return built_in
        for point in self._entry_points():
            if point.name == name:
                return self._load_entry_point(point)
        matches = difflib.get_close_matches(name, self._allowed(), n=2)
        near = [match for match in matches if match != name]
        advice = f"did you mean {' or '.join(near)}?" if near else ""
        allowed = "one of " + ", ".join(self._allowed())
        raise RequestError([Fault(self.argument, repr(name)[:80], allowed, advice)])

    def _allowed(self) -> list[str]:
        return [*self.other_values, *self.names()]

    def _entry_points(self) -> list[EntryPoint]:
        """Return the entry points of other packages, without the names of built-in classes."""
        return [p for p in entry_points(group=self.group) if p.name not in self.built_in]

    def _load_entry_point(self, point: EntryPoint) -> type[Registered]:
        try:
            loaded: Any = point.load()
        except (Exception, SystemExit) as error:  # code of another package
            package = point.dist.name if point.dist else "another package"
            reason = str(error) or type(error).__name__
            problem = f"{point.value} of {package} cannot be imported: {reason}"
            raise RequestError([Fault(self.argument, "", problem)]) from error
        if not isinstance(loaded, type):
            problem = f"{point.value} is not a class"
            raise RequestError([Fault(self.argument, "", problem)])
        registered: type[Registered] = loaded
        return registered


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group, of all packages on the import path."""
    return _read_entry_points(group, tuple(map(_describe_folder, sys.path)))


@functools.lru_cache(maxsize=32)
def _read_entry_points(group: str, import_path: tuple[Any, ...]) -> EntryPoints:
    """Read the entry points again only if the import path has changed.

    With 300 packages this takes 25 ms of CPU time, and each ``read`` of files needs the names of
    all formats.
    """
    del import_path
    return importlib.metadata.entry_points(group=group)


def _describe_folder(path: str) -> tuple[Any, ...]:
    """Return a folder and the time when a package was last added to it or removed from it."""
    try:
        found = Path(path or ".").stat()
    except (OSError, ValueError):
        return (path,)
    return path, found.st_dev, found.st_ino, found.st_mtime_ns


def _import_class(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
