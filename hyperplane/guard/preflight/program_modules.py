"""Modules that the program uses: installed packages, and local modules that workers may lack.

The modules of interest are those that ``__main__`` and the callers on the stack have in their
namespaces or import somewhere in their code, also in functions, and those of these modules in turn,
as far as they are local. All loaded modules would be too many: a notebook loads a hundred packages
that no task uses.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

from hyperplane.guard.preflight.environment_program import digest_sources
from hyperplane.guard.preflight.imported_names import list_code_imports, list_file_imports

#: Packages of notebooks and of tests, whose names a program has without using them in tasks.
_TOOLS = frozenset({"IPython", "ipykernel", "pytest", "_pytest", "__main__"})
#: This package; its version is compared instead.
_OWN = "hyperplane"
#: Seconds after which the namespaces and the code of a large program are not searched further.
SEARCH_SECONDS = 1.5


@dataclass(frozen=True)
class LocalModule:
    """A module or package of the program that is not installed as a copy.

    Parameters
    ----------
    name : str
        Name of the top-level module.
    path : Path
        Its file, or the folder of a package.
    """

    name: str
    path: Path

    @cached_property
    def sources(self) -> dict[str, str]:
        """Digests of its source files by their paths, as workers compute them, too."""
        return digest_sources(self.name, self.path)


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
    absent : tuple of str
        Modules that functions of tasks import, and that this process cannot find.
    """

    packages: tuple[str, ...] = ()
    local: tuple[LocalModule, ...] = ()
    complete: bool = True
    absent: tuple[str, ...] = ()

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

    Nothing is imported. The search ends after some ``seconds``; with None it is always complete.
    """
    return _ModuleSearch(seconds).run(frame, needed)


class _ModuleSearch:
    """Search of namespaces and code for modules; each top-level module is looked up once."""

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        # Modules that are pickled by value need not be on the workers.
        by_value = cloudpickle.list_registry_pickle_by_value()
        self._skipped = _TOOLS | {_OWN} | sys.stdlib_module_names | by_value
        self._find = cache(find_local_module)
        self._local: dict[str, LocalModule] = {}
        self._packages: set[str] = set()
        self._namespaces: deque[dict[str, Any]] = deque()
        self._searched: set[int] = set()
        #: Names of local modules whose source has not been searched, and those that were found.
        self._sources: deque[str] = deque()
        self._found: set[str] = set()

    def run(self, frame: FrameType | None, needed: Iterable[str]) -> ProgramModules:
        self._add_all(needed)
        self._namespaces += self._find_roots(frame)
        self._add_main_imports()
        while (self._namespaces or self._sources) and not self._is_late():
            # Namespaces first: a look at them takes less time than reading code.
            if self._namespaces:
                namespace = self._namespaces.popleft()
                if id(namespace) not in self._searched:
                    self._searched.add(id(namespace))
                    self._add_all(_list_modules(namespace))
            else:
                name = self._sources.popleft()
                file, package = _find_source(name, self._local[name.partition(".")[0]].path)
                self._add_all(list_file_imports(file, package), local_only=True)
        return ProgramModules(
            tuple(sorted(self._packages)),
            tuple(sorted(self._local.values(), key=lambda each: each.name)),
            complete=not self._is_late(),
        )

    def _add_all(self, names: Iterable[str], local_only: bool = False) -> None:
        """Record modules by their full names; those that are local are searched, too.

        An import in code may be that of an optional package, so that only local ones count.
        """
        for name in names:
            if self._is_late():
                break
            top = name.partition(".")[0]
            if name in self._found or top in self._skipped or top in self._packages:
                continue
            module = self._find(top)
            if module is not None:
                self._local[top] = module
                self._add_local(name)
            elif not local_only and _origin(top):
                self._packages.add(top)

    def _add_local(self, name: str) -> None:
        """Put a local module, and the packages that it is in, into the lists to search."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            each = ".".join(parts[:count])
            if each not in self._found:
                self._found.add(each)
                self._namespaces.append(getattr(sys.modules.get(each), "__dict__", {}))
                self._sources.append(each)

    def _add_main_imports(self) -> None:
        """Record the local modules that the file and the functions of the main module import."""
        main = sys.modules.get("__main__")
        if main is None or _is_tool(main):
            return
        package = getattr(main, "__package__", None) or ""
        file = getattr(main, "__file__", None)
        if isinstance(file, str):
            self._add_all(list_file_imports(Path(file), package), local_only=True)
        for value in list(vars(main).values()):  # those of a notebook have no file
            for each in (value, *vars(value).values()) if type(value) is type else (value,):
                if type(each) is FunctionType and each.__module__ == main.__name__:
                    self._add_all(list_code_imports(each.__code__, package), local_only=True)

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


def find_unknown_modules(names: Iterable[str]) -> tuple[str, ...]:
    """Return the top-level modules that this process has not loaded and cannot find.

    Examples
    --------
    >>> find_unknown_modules(["json", "dask", "no_such_module"])
    ('no_such_module',)
    """
    known = sys.stdlib_module_names | sys.modules.keys()
    return tuple(sorted(name for name in names if name not in known and not _origin(name)))


def find_local_module(name: str) -> LocalModule | None:
    """Return a top-level module if it is a file that is not installed, or editable; else None."""
    origin = _origin(name)
    if not origin:
        return None
    path = Path(origin).resolve()
    if any(path.is_relative_to(folder) for folder in _installed_folders()):
        return None
    return LocalModule(name, path.parent if path.stem == "__init__" else path)


def _find_source(name: str, path: Path) -> tuple[Path, str]:
    """Return the source file of a local module by its full name, and the package that it is in.

    ``path`` is that of its top-level module. The file may not exist: the name may be that of a
    function.
    """
    package, _, last = name.rpartition(".")
    if not package:
        return (path, "") if path.is_file() else (path / "__init__.py", name)
    place = path.joinpath(*name.split(".")[1:])
    if (place / "__init__.py").is_file():
        return place / "__init__.py", name
    return place.with_name(f"{last}.py"), package


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
