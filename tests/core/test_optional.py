"""Optional packages."""

import ast
import importlib.metadata
import sys
from pathlib import Path

import pytest

import hyperplane
from hyperplane.core.optional import need
from hyperplane.errors import MissingPackage


def test_an_installed_module_is_imported():
    assert need("json.decoder", "none") is sys.modules["json.decoder"]


def test_the_error_names_the_missing_package_and_the_extra():
    with pytest.raises(MissingPackage, match=r"hyperplane\[plot\]") as caught:
        need("no_such_package_here.part", "plot")
    assert (caught.value.package, caught.value.extra) == ("no_such_package_here", "plot")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_missing_submodule_is_reported_as_a_missing_package():
    with pytest.raises(MissingPackage) as caught:
        need("json.no_such_part", "none")
    assert caught.value.package == "json"


def test_a_missing_dependency_of_a_package_raises_the_original_error(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_package_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_here") as caught:
        need("half_installed", "plot")
    assert not isinstance(caught.value, MissingPackage)


def test_an_import_error_of_an_installed_package_is_raised_unchanged(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise ImportError('libfoo.so not found')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"libfoo\.so") as caught:
        need("broken_package", "plot")
    assert not isinstance(caught.value, MissingPackage)


def _calls_of_need():
    for file in Path(hyperplane.__file__).parent.rglob("*.py"):
        source = file.read_text()
        for node in ast.walk(ast.parse(source)) if "need(" in source else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need":
                arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
                yield [ast.literal_eval(argument) for argument in arguments]


def test_every_extra_in_calls_of_need_exists():
    extras = set(importlib.metadata.metadata("hyperplane").get_all("Provides-Extra"))
    named = {extra for _, extra in _calls_of_need()}
    assert named
    assert named <= extras
