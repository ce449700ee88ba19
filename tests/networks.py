"""Skip tests and pages that need PyTorch, TensorFlow, Ray or Spark where these are not installed.

A test has the mark ``torch``, ``tensorflow``, ``ray`` or ``spark``; a page has the comment
``<!-- needs: torch -->`` on a line, which gives its examples the same mark; ``<!-- slow -->`` gives
them the mark ``slow``.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import pytest

from hyperplane.core.optional import is_installed

#: Marks, which are also the names of the extras.
MARKS = ("ray", "spark", "tensorflow", "torch")
#: Names of modules that differ from their mark.
_MODULES = {"spark": "pyspark"}
#: Packages that a run requires, by the value of ``HYPERPLANE_REQUIRE_NETWORKS``, and its command.
REQUIRED = {"1": ("tensorflow", "torch"), "ray": ("ray",), "spark": ("spark", "torch", "raydp")}
_COMMANDS = {"ray": "make ray", "spark": "make spark"}
#: Settings that Ray Data sets itself; sockets and thread pools that pyspark does not close.
_IGNORED = {
    "ray": "ignore:.*deprecated:DeprecationWarning",
    "spark": "ignore:.*unclosed.*(socket|multiprocessing pool):ResourceWarning",
}
_NEEDS = re.compile(r"^<!-- needs: ([a-z, ]+) -->$", re.MULTILINE)
_SLOW = re.compile(r"^<!-- slow -->$", re.MULTILINE)


def fail_if_missing() -> None:
    """Raise an error if the run must not skip tests and a package is missing."""
    required = REQUIRED.get(os.environ.get("HYPERPLANE_REQUIRE_NETWORKS", ""), ())
    if missing := [name for name in required if not _is_installed(name)]:
        names = " and ".join(missing)
        raise pytest.UsageError(f"HYPERPLANE_REQUIRE_NETWORKS is set, but not installed: {names}")


@functools.cache
def needs_of_page(page: Path) -> list[str]:
    """Return the packages that the comment of a page names."""
    found = _NEEDS.search(page.read_text(encoding="utf-8"))
    names = found[1].replace(",", " ").split() if found else []
    if unknown := set(names) - set(MARKS):
        raise ValueError(f"{page}: needs: {unknown}: expected {MARKS}")
    return names


@functools.cache
def is_slow_page(page: Path) -> bool:
    """Return whether the examples of a page are slow."""
    return _SLOW.search(page.read_text(encoding="utf-8")) is not None


def add_marks(item: pytest.Item) -> None:
    """Give an example of a page its marks; skip an item whose package is missing."""
    if item.path.suffix == ".md":
        for name in needs_of_page(item.path):
            item.add_marker(name)
        if is_slow_page(item.path):
            item.add_marker("slow")
    names = {mark.name for mark in item.iter_markers()}
    for name in MARKS:
        if name in names and not _is_installed(name):
            command = _COMMANDS.get(name, "make networks")
            item.add_marker(pytest.mark.skip(reason=f"{name} is not installed ({command})"))
        elif name in names and name in _IGNORED:
            item.add_marker(pytest.mark.filterwarnings(_IGNORED[name]))


def _is_installed(name: str) -> bool:
    return is_installed(_MODULES.get(name, name))
