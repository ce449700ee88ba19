"""Modules that the program uses: installed packages, and local modules that workers may lack.

The modules of interest are those that ``__main__`` and the callers on the stack have in their
namespaces, and those that these modules have in turn, as far as they are local. All loaded modules
would be too many: a notebook loads a hundred packages that no task uses.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

#: Packages of notebooks and of tests, whose names a program has without using them in tasks.
_TOOLS = frozenset({"IPython", "ipykernel", "pytest", "_pytest", "__main__"})
#: This package; its version is compared instead.
_OWN = "hyperplane"
#: Seconds after which the namespaces of a large program are not searched further.
SEARCH_SECONDS = 1.0


@dataclass(frozen=True)
class LocalModule:
    """A module or package of the program that is not installed as a copy.

    Parameters
    ----------
    name : str
        Name of the top-level module.
    path : Path
        Its file, or the folder of a package.
    digest : str
        SHA-256 of its file, or of the ``__init__.py`` of a package; empty without one.
    """

    name: str
    path: Path
    digest: str = ""


@dataclass(frozen=True)
class ProgramModules:
    """Top-level modules that the program uses.

    Parameters
    ----------
    packages : tuple of str
        Names of modules that are installed.
    local : tuple of LocalModule
        Modules of files that are not installed, and editable packages.
    complete : bool
        Whether the search ended before its time limit.
    """

    packages: tuple[str, ...] = ()
    local: tuple[LocalModule, ...] = ()
    complete: bool = True

    @property
    def names(self) -> list[str]:
        """Names of all modules."""
        return [*self.packages, *(module.name for module in self.local)]


def find_program_modules(
    frame: FrameType | None = None,
    needed: Iterable[str] = (),
    seconds: float | None = SEARCH_SECONDS,
) -> ProgramModules:
    """Return the modules that ``__main__`` and the callers of a frame use, and ``needed`` ones.

    The search ends after some ``seconds``; with None it is always complete.
    """
    return _ModuleSearch(seconds).run(frame, needed)


class _ModuleSearch:
    """Search of namespaces for modules; each top-level module is looked up once."""

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        # Modules that are pickled by value need not be on the workers.
        by_value = cloudpickle.list_registry_pickle_by_value()
        self._skipped = _TOOLS | {_OWN} | sys.stdlib_module_names | by_value
        self._find = cache(find_local_module)
        self._local: dict[str, LocalModule] = {}
        self._packages: set[str] = set()

    def run(self, frame: FrameType | None, needed: Iterable[str]) -> ProgramModules:
        pending = [{name: sys.modules.get(name) for name in needed}, *self._find_roots(frame)]
        seen: set[int] = set()
        while pending and not self._is_late():
            namespace = pending.pop(0)
            if id(namespace) in seen:
                continue
            seen.add(id(namespace))
            for name in _list_modules(namespace):
                if self._is_late():
                    break
                top = name.partition(".")[0]
                if top in self._skipped or top in self._packages:
                    continue
                module = self._find(top)
                if module is not None:
                    self._local[top] = module
                    pending.append(getattr(sys.modules.get(name), "__dict__", {}))
                elif top in sys.modules and _origin(top):
                    self._packages.add(top)
        return ProgramModules(
            tuple(sorted(self._packages)),
            tuple(sorted(self._local.values(), key=lambda each: each.name)),
            complete=not self._is_late(),
        )

    def _is_late(self) -> bool:
        return time.monotonic() > self._end

    def _find_roots(self, frame: FrameType | None) -> Iterator[dict[str, Any]]:
        """Yield the namespaces of the program: of its main module, and of local callers."""
        main = sys.modules.get("__main__")
        if main is not None and not _is_tool(main):
            yield vars(main)
        while frame is not None and not self._is_late():
            name = str(frame.f_globals.get("__name__", ""))
            top = name.partition(".")[0]
            if top not in (_OWN, *_TOOLS, "") and self._find(top) is not None:
                yield {name: sys.modules.get(name), **frame.f_globals}
            frame = frame.f_back


def find_local_module(name: str) -> LocalModule | None:
    """Return a top-level module if it is a file that is not installed, or editable; else None."""
    origin = _origin(name)
    if not origin:
        return None
    path = Path(origin).resolve()
    if any(path.is_relative_to(folder) for folder in _installed_folders()):
        return None
    digest = ""
    with suppress(OSError):  # not readable, or removed since its import
        if path.is_dir():  # a package without __init__.py
            return LocalModule(name, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return LocalModule(name, path.parent if path.stem == "__init__" else path, digest)


def _origin(name: str) -> str:
    """Return the file, or the folder, of a loaded or findable top-level module; or ""."""
    file: Any = None
    folders: list[Any] = []
    with suppress(Exception):  # modules may be objects of any kind, and finders may fail
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        folders = list(getattr(module, "__path__", ()))
        if file is None and not folders:
            spec = importlib.util.find_spec(name)
            if spec is not None:
                file = spec.origin if spec.has_location else None
                folders = list(spec.submodule_search_locations or ())
    return next((each for each in (file, *folders) if isinstance(each, str) and each), "")


@cache
def _installed_folders() -> tuple[Path, ...]:
    """Return the folders of the standard library and of installed packages."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {Path(sysconfig.get_path(name)).resolve() for name in names}
    folders |= {
        Path(entry).resolve()
        for entry in sys.path
        if Path(entry).name in ("site-packages", "dist-packages")
    }
    return tuple(folders)


def _is_tool(main: ModuleType) -> bool:
    """Return whether the main module is an installed program, such as pytest, and not the user's.

    A notebook has no file.
    """
    file = getattr(main, "__file__", None)
    if file is None:
        return False
    path = Path(file).resolve()
    scripts = Path(sysconfig.get_path("scripts")).resolve()
    return path.parent == scripts or any(
        path.is_relative_to(folder) for folder in _installed_folders()
    )


def _list_modules(namespace: dict[str, Any]) -> Iterable[str]:
    """Yield the names of the modules, and of the modules of functions and classes, of a namespace.

    Names with an underscore, such as the outputs of a notebook, do not count.
    """
    for name, value in list(namespace.items()):
        if not isinstance(name, str) or name.startswith("_"):
            continue
        # By the type, not by isinstance: that reads __class__, for which lazy objects import or
        # connect to what they represent, and may raise.
        kind = type(value)
        module: Any = None
        with suppress(Exception):
            if issubclass(kind, ModuleType):
                module = value.__name__
            elif issubclass(kind, type) or _is_routine(kind):
                module = value.__module__
        if isinstance(module, str):
            yield module


def _is_routine(kind: type) -> bool:
    """Return whether objects of a type are functions or methods, also compiled ones."""
    if issubclass(kind, BuiltinFunctionType | FunctionType | MethodType):
        return True
    return hasattr(kind, "__get__") and not hasattr(kind, "__set__")
