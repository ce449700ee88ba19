"""Modules of a program: which are local, which are installed, and which tasks need."""

from __future__ import annotations

import importlib
import json
import sys
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
from hyperplane.guard.preflight import program_modules
from hyperplane.guard.preflight.missing_modules import check_modules
from hyperplane.guard.preflight.program_modules import (
    ProgramModules,
    find_local_module,
    find_program_modules,
)
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
    assert (found.path, found.digest) == (tmp_path / "plain_folder", "")


def test_modules_of_local_modules_count_and_those_of_installed_ones_do_not(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("far_helpers.py", "import polars\n")
    near = create("near_helpers.py", "import json\nimport far_helpers\nfrom numpy import ones\n")
    monkeypatch.setitem(globals(), "near_helpers", near)
    found = find_program_modules(sys._getframe())
    assert {"near_helpers", "far_helpers"} <= {module.name for module in found.local}
    assert {"numpy", "polars"} <= set(found.packages)
    assert {"json", "hyperplane", "pytest"}.isdisjoint(found.names)
    assert "pyarrow" not in found.names


def test_modules_that_are_pickled_by_value_do_not_count(create: Create) -> None:
    module = create("by_value.py", "")
    assert "by_value" in find_program_modules(None, ["by_value"]).names
    cloudpickle.register_pickle_by_value(module)
    try:
        assert "by_value" not in find_program_modules(None, ["by_value"]).names
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_tasks_need_the_modules_that_they_refer_to(create: Create) -> None:
    module = create("task_helpers.py", "def double(x):\n    return 2 * x\n")

    def work(x: Any) -> Any:
        return module.double(json.loads(x))

    assert {"task_helpers", "json"} <= find_task_modules(work)
    blocks = da.from_array(np.arange(10), chunks=5).map_blocks(module.double)
    assert "task_helpers" in find_task_modules(blocks)
    assert "task_helpers" not in find_task_modules(da.ones(10))


def test_an_object_that_cannot_be_pickled_is_no_error() -> None:
    assert isinstance(find_task_modules([open, sys._getframe()]), set)


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
    found = find_program_modules(None, ["with_odd_names"])
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
    assert found.digest == ""


def test_each_module_is_looked_up_once(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    create("many_names.py", "from numpy import *\n")
    looked_up: list[str] = []

    def count(name: str) -> Any:
        looked_up.append(name)
        return find_local_module(name)

    monkeypatch.setattr(program_modules, "find_local_module", count)
    found = find_program_modules(None, ["many_names"])
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
def test_engines_of_this_machine_need_no_search(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*arguments: Any) -> Any:
        raise AssertionError("searched")

    monkeypatch.setattr(start_checks, "find_program_modules", search)
    monkeypatch.setattr(start_checks, "find_task_modules", search)
    plan = replace(hyperplane.plan_cluster(engine="local", num_workers=1), engine=engine)
    hyperplane.preflight(plan, data=da.ones(3))
    start_checks.check_before_start(_Engine(), plan, sync=False)


class _Engine(LocalEngine):
    """The local engine without checks, which other tests run."""

    def preflight_checks(self, plan: Any, request: Any) -> list[Any]:
        return []
