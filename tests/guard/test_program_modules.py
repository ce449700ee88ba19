"""Modules of a program: which are local, which are installed, and which tasks need."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import dask.array as da
import numpy as np
import pytest

import hyperplane
from hyperplane import start_checks
from hyperplane.clusters.dask.local.engine import LocalEngine
from hyperplane.guard.preflight import program_modules, task_modules
from hyperplane.guard.preflight.environment import PreflightEnvironment, describe_here
from hyperplane.guard.preflight.environment_program import digest_sources
from hyperplane.guard.preflight.missing_modules import check_modules, check_unknown_modules
from hyperplane.guard.preflight.program_modules import (
    ProgramModules,
    find_local_module,
    find_program_modules,
)
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.task_modules import find_task_modules

Create = Callable[[str, str], ModuleType]


@pytest.fixture
def create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Create:
    """Create and import a module of a folder that only this process has."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, text: str) -> ModuleType:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, module.partition(".")[0], raising=False)
        monkeypatch.delitem(sys.modules, module, raising=False)
        return importlib.import_module(module)

    return write


def test_a_file_and_a_package_are_local_and_installed_ones_are_not(create: Create) -> None:
    single, package = create("one_file.py", "a = 1\n"), create("a_package/__init__.py", "")
    found = find_local_module("one_file")
    assert found is not None
    assert str(found.path) == single.__file__
    found = find_local_module("a_package")
    assert found is not None
    assert [str(found.path)] == list(package.__path__)
    assert find_local_module("numpy") is None
    assert find_local_module("json") is None
    assert find_local_module("no_such_module_at_all") is None


def test_a_package_without_an_init_file_is_local(create: Create, tmp_path: Path) -> None:
    create("plain_folder/inside.py", "")
    found = find_local_module("plain_folder")
    assert found is not None
    assert (found.path, found.sources) == (tmp_path / "plain_folder", {})


def test_modules_of_local_modules_count_and_those_of_installed_ones_do_not(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("far_helpers.py", "import polars\n")
    near = create("near_helpers.py", "import json\nimport far_helpers\nfrom numpy import ones\n")
    monkeypatch.setitem(globals(), "near_helpers", near)
    found = find_program_modules(sys._getframe(), seconds=None)
    assert {"near_helpers", "far_helpers"} <= {module.name for module in found.local}
    assert {"numpy", "polars"} <= set(found.packages)
    assert {"json", "hyperplane", "pytest"}.isdisjoint(found.names)
    assert "pyarrow" not in found.names


def test_modules_that_are_pickled_by_value_do_not_count(create: Create) -> None:
    module = create("by_value.py", "")
    assert "by_value" in find_program_modules(None, ["by_value"], seconds=None).names
    cloudpickle.register_pickle_by_value(module)
    try:
        assert "by_value" not in find_program_modules(None, ["by_value"], seconds=None).names
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_tasks_need_the_modules_that_they_refer_to(create: Create) -> None:
    module = create("task_helpers.py", "def double(x):\n    return 2 * x\n")

    def work(x: Any) -> Any:
        return module.double(json.loads(x))

    assert {"task_helpers", "json"} <= find_task_modules(work).needed
    blocks = da.from_array(np.arange(10), chunks=5).map_blocks(module.double)
    assert "task_helpers" in find_task_modules(blocks).needed
    assert "task_helpers" not in find_task_modules(da.ones(10)).needed


def test_local_modules_that_are_imported_in_functions_are_found_without_an_import(
    create: Create, tmp_path: Path
) -> None:
    files = {
        "lazy_pkg/__init__.py": "",
        "lazy_pkg/one.py": "def f():\n    from . import two\n    from .deep.three import g\n",
        "lazy_pkg/two.py": "import lazy_mod  # a cycle\nimport lazy_other\n",
        "lazy_pkg/deep/__init__.py": "",
        "lazy_pkg/deep/three.py": (
            "def g():\n    from ...lazy_beyond import x\n    import lazy_last\n"
        ),
        "lazy_pkg/not_used.py": "import lazy_unused\n",
        "lazy_mod.py": (
            "import no_such_module\nfrom typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import lazy_unused\n"
            "def f(x):\n    from lazy_pkg import one\n    import polars\n"
        ),
        **dict.fromkeys(["lazy_other.py", "lazy_last.py", "lazy_unused.py"], ""),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    outer = create("outer_mod.py", "def g(x):\n    import lazy_mod\n    return lazy_mod.f(x)\n")

    def by_value(x: Any) -> Any:
        def inner() -> Any:
            from lazy_mod import f

            return f(x)

        return inner()

    by_value.__module__ = "__main__"  # else pickled by reference
    assert find_task_modules(by_value).imported == {"lazy_mod", "lazy_mod.f"}
    expected = {"lazy_last", "lazy_mod", "lazy_other", "lazy_pkg"}
    for names in (["lazy_mod"], find_task_modules(by_value).imported):
        found = find_program_modules(None, names, seconds=None)
        assert expected <= set(found.names)
        assert "lazy_unused" not in found.names
    found = find_program_modules(None, find_task_modules(outer.g).needed, seconds=None)
    assert {"outer_mod", *expected} <= set(found.names)
    assert (expected | {"no_such_module"}).isdisjoint(sys.modules)


def test_the_main_program_counts_with_its_file_and_its_functions(
    create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("of_the_file", "of_a_cell", "of_a_method"):
        (tmp_path / f"{name}.py").touch()
    main = ModuleType("__main__")
    (tmp_path / "script.py").write_text("def f():\n    import of_the_file\n")
    main.__file__ = str(tmp_path / "script.py")
    cell = (
        "def g():\n    import of_a_cell\nclass C:\n    def h(self):\n        import of_a_method\n"
    )
    exec(cell, vars(main))  # as a notebook does it
    create("of_nothing.py", "")  # puts the folder on the path
    monkeypatch.setitem(sys.modules, "__main__", main)
    names = {module.name for module in find_program_modules(seconds=None).local}
    assert names == {"of_the_file", "of_a_cell", "of_a_method"}


def test_an_object_that_cannot_be_pickled_is_no_error() -> None:
    assert isinstance(find_task_modules([open, sys._getframe()]).needed, frozenset)


def test_the_time_limit_holds_for_a_list_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_modules, "_SECONDS", 0.0)
    with pytest.raises(TimeoutError):
        task_modules._ModuleCollector().dump([str(number) for number in range(20_000)])


class _Unresolved:
    """A lazy object, such as a proxy, whose target cannot be loaded."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("outside of its context")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"outside of its context: {name}")


def test_lazy_objects_and_odd_modules_are_no_error(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = ModuleType("nameless")
    del nameless.__name__
    module = create("with_odd_names.py", "from numpy import ones\n")
    odd = {"lazy": _Unresolved(), "nameless": nameless, 1: 2}
    vars(module).update(odd)
    monkeypatch.setitem(sys.modules, "an_object", _Unresolved())
    monkeypatch.setitem(vars(module), "work", create("of_object.py", "def work(): ...\n").work)
    module.work.__module__ = "an_object"
    found = find_program_modules(None, ["with_odd_names"], seconds=None)
    assert [each.name for each in found.local] == ["with_odd_names"]
    assert "numpy" in found.packages  # and those of the program that runs the tests


def test_a_module_whose_file_cannot_be_read_is_local(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("unreadable.py", "")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    found = find_local_module("unreadable")
    assert found is not None
    assert found.sources == {"unreadable.py": ""}


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("", ""),
        ("deep/core.py", "tools/deep/core.py differs"),
        ("-deep/core.py", "tools/deep/core.py is missing there"),
        ("more.py", "tools/more.py is only there"),
    ],
)
def test_packages_are_compared_with_all_their_source_files(
    create: Create, tmp_path: Path, change: str, difference: str
) -> None:
    create("tools/__init__.py", "")
    (tmp_path / "tools/deep").mkdir()
    (tmp_path / "tools/deep/core.py").write_text("a = 1\n")
    (tmp_path / "tools/data.bin").write_bytes(b"not compared")
    mine = find_local_module("tools")
    assert mine is not None
    there = tmp_path / "host" / "tools"
    shutil.copytree(mine.path, there)
    (there / "data.bin").unlink()
    if change.startswith("-"):
        (there / change[1:]).unlink()
    elif change:
        (there / change).write_text("a = 2\n")
    sources = digest_sources("tools", there)
    host = PreflightEnvironment(versions={}, modules={"tools": "1"}, sources={"tools": sources})
    [finding] = check_modules(ProgramModules(local=(mine,)), {"host a": host})
    assert finding.state == ("warning" if change else "ok")
    assert difference in finding.text
    asked = PreflightRequest(ProgramModules(local=(mine,))).for_modules()
    assert describe_here(asked).sources == {"tools": mine.sources}


def test_each_module_is_looked_up_once(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    create("many_names.py", "from numpy import *\n")
    looked_up: list[str] = []

    def count(name: str) -> Any:
        looked_up.append(name)
        return find_local_module(name)

    monkeypatch.setattr(program_modules, "find_local_module", count)
    found = find_program_modules(None, ["many_names"], seconds=None)
    assert found.complete
    assert "numpy" in found.packages
    assert looked_up.count("numpy") == 1


def test_the_search_ends_after_its_time_unless_modules_are_shipped(create: Create) -> None:
    create("late_helpers.py", "")
    assert not find_program_modules(None, ["late_helpers"], seconds=0.0).complete
    found = find_program_modules(None, ["late_helpers"], seconds=None)
    assert found.complete
    assert "late_helpers" in found.names
    [finding] = check_modules(ProgramModules(complete=False), {})
    assert finding.state == "unchecked"


@pytest.mark.parametrize("engine", ["local", "cuda"])
def test_engines_of_this_machine_need_no_search_of_the_program(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*arguments: Any) -> Any:
        raise AssertionError("searched")

    monkeypatch.setattr(start_checks, "find_program_modules", search)
    plan = replace(hyperplane.plan_cluster(engine="local", num_workers=1), engine=engine)
    hyperplane.preflight(plan, data=da.ones(3))
    start_checks.check_before_start(_Engine(), plan, sync=False)


class _Engine(LocalEngine):
    """The local engine without checks, which other tests run."""

    def preflight_checks(self, plan: Any, request: Any) -> list[Any]:
        return []


class _ThreadNote:
    """An object that notes the threads that pickle it."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __reduce__(self) -> tuple[type, tuple[()]]:
        self.names.append(threading.current_thread().name)
        return int, ()


@pytest.mark.usefixtures("patient_checks")
def test_an_import_of_a_module_that_exists_nowhere_is_reported() -> None:
    threads = _ThreadNote()

    def work() -> object:
        import no_such_module

        try:
            import no_such_option
        except ImportError:
            no_such_option = None
        if sys.platform == "none":
            import no_such_branch

            del no_such_branch

        def use() -> None:
            import no_such_function

            del no_such_function

        del no_such_module, no_such_option
        return use, threads

    plan = hyperplane.plan_cluster(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5)
    (warning,) = hyperplane.preflight(plan, data=work).warnings
    assert str(warning) == (
        "packages: no_such_module: tasks import it, and it is not on this machine; install it, or "
        "correct its name"
    )
    # The search is one of the checks, which have a time limit.
    assert threads.names == ["hyperplane-preflight-modules"]
    program = ProgramModules(absent=("elsewhere", "no_such_module"))
    asked = PreflightRequest(program=program).for_modules()
    environment = describe_here(asked)
    environment = replace(environment, modules={**environment.modules, "elsewhere": "digest"})
    (warning,) = check_modules(program, {"host": environment})
    assert "no_such_module: tasks import it, and it is neither here nor on host" in str(warning)
    (unchecked,) = check_unknown_modules(program, "the image")
    assert unchecked.state == "unchecked"
    assert "elsewhere, no_such_module: tasks import what this machine lacks" in str(unchecked)
