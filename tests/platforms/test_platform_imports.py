"""Platforms know neither a framework nor the jobs and clusters that use them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hyperplane

PACKAGE = Path(hyperplane.__file__).parent
FILES = sorted((PACKAGE / "platforms").rglob("*.py"))
#: Packages of this project that platforms may import.
ALLOWED = {"core", "objectstore", "platforms", "sizing", "spec"}
#: Frameworks whose clusters run on platforms, and their packages for them.
FRAMEWORK = re.compile(r"(dask|distributed|ray|kuberay|pyspark|spark|torch|tornado)(_\w+|\.|$)")
#: A module in a text; texts that begin with "hyperplane.engines" are keys of the configuration.
MODULE = re.compile(r"hyperplane\.(?!engines\b)\w+(\.\w+)*(:\w+)?")
#: Helpers of a framework within an allowed package.
FRAMEWORK_HELPERS = ("hyperplane.core.dask_internals",)


def _imports(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and module of each import, those for types and those by name among them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Constant) and MODULE.fullmatch(str(node.value)):
            yield node.lineno, str(node.value)


def _is_forbidden(name: str) -> bool:
    if FRAMEWORK.match(name) or name.startswith(FRAMEWORK_HELPERS):
        return True
    package, _, rest = name.partition(".")
    return package == "hyperplane" and rest.partition(".")[0].partition(":")[0] not in ALLOWED


def test_there_are_platforms() -> None:
    assert {file.parent.name for file in FILES} >= {"local", "ssh", "slurm", "kubernetes"}


def test_a_platform_imports_no_framework_no_cluster_and_no_job() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE.parent)}:{line}: {name}"
        for file in FILES
        for line, name in _imports(file.read_text(encoding="utf-8"))
        if _is_forbidden(name)
    ]
    assert wrong == []


def test_the_check_sees_imports_for_types_in_functions_and_by_name() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "import asyncssh, psutil\n"
        "from hyperplane.core.errors import Fault\n"
        "from hyperplane.platforms.local import machine\n"
        "if TYPE_CHECKING:\n"
        "    from hyperplane.jobs.execution.attempt_process import LocalProcess\n"
        "def f():\n"
        "    from dask_cuda import CUDAWorker\n"
        "    import distributed.security, dask\n"
        "    from hyperplane import config\n"
        "    from hyperplane.core.dask_internals import scheduler\n"
        "PROGRAM = 'hyperplane.clusters.dask.ssh.process:main'\n"
    )
    found = [line for line, name in _imports(source) if _is_forbidden(name)]
    assert found == [6, 8, 9, 9, 10, 11, 12]
