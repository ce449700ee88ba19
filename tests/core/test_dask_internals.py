"""Only ``core.dask_internals`` imports private names of Dask and distributed."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hyperplane

PACKAGE = Path(hyperplane.__file__).parent
INTERNALS = PACKAGE / "core" / "dask_internals"


def is_private(module, name=""):
    """Whether an import is one of a private name; all of ``dask.dataframe.dask_expr`` is."""
    parts = module.split(".")
    return parts[0] in ("dask", "distributed") and any(
        part.startswith("_") or part == "dask_expr" for part in (*parts, name)
    )


def private_imports(source):
    """Yield the line and the name of each private import of a source."""
    if not re.search(r"\bimport\b.*\b(?:dask|distributed)\b|\bfrom (?:dask|distributed)\b", source):
        return  # to parse all files takes a second
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found = [
                f"{node.module}.{a.name}" for a in node.names if is_private(node.module, a.name)
            ]
        elif isinstance(node, ast.Import):
            found = [a.name for a in node.names if is_private(a.name)]
        else:
            continue
        for name in found:
            yield node.lineno, name


def test_other_modules_import_no_private_names():
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {name}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if INTERNALS not in file.parents
        for line, name in private_imports(file.read_text(encoding="utf-8"))
    ]
    assert not found, "import these from hyperplane.core.dask_internals:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "from dask._task_spec import Task",
        "import dask.dataframe.dask_expr as dx",
        "def f():\n    from distributed.client import _global_clients",
        "from distributed import _concurrent_futures_thread",
    ],
)
def test_private_imports_are_found(source):
    assert len(list(private_imports(source))) == 1
    assert not list(private_imports("from dask.base import tokenize\nimport distributed.client"))


@pytest.mark.parametrize("module", ["clients", "frames", "shuffles", "tasks"])
def test_all_names_exist_in_this_release_and_are_used(module):
    names = importlib.import_module(f"hyperplane.core.dask_internals.{module}").__all__
    texts = [
        file.read_text(encoding="utf-8")
        for file in PACKAGE.rglob("*.py")
        if INTERNALS not in file.parents
    ]
    users = [text for text in texts if f"hyperplane.core.dask_internals.{module} import" in text]
    assert users
    assert [name for name in names if not any(name in text for text in users)] == []


@pytest.mark.slow
@pytest.mark.process
def test_each_module_loads_only_the_library_that_it_names():
    # The imports of clients include no pandas, so one process can show it for all modules.
    source = """import importlib, sys
for module in ("tasks", "workarounds", "clients", "frames"):
    importlib.import_module(f"hyperplane.core.dask_internals.{module}")
    print(module, *[name for name in ("pandas", "distributed") if name in sys.modules])"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "tasks", "workarounds", "clients distributed", "frames pandas distributed",
    ]  # fmt: skip
