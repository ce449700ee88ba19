"""Find tests that the scale changes: those that use ``scale`` or Hypothesis, also indirectly."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SCALES = {"scale", "hypothesis"}


@cache
def _definitions(path: Path) -> dict[str, set[str | tuple[Path, str]] | None]:
    """Return the names that each name of a file uses; None for names of ``scale`` or Hypothesis.

    A name that is imported from another file of the tests is a pair of that file and the name.
    """
    found: dict[str, set[str | tuple[Path, str]] | None] = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ImportFrom | ast.Import):
            origin = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for name in node.names:
                module = origin or name.name
                files = [folder / f"{module}.py" for folder in (path.parent, TESTS)]
                if module.partition(".")[0] in SCALES:
                    found[name.asname or name.name] = None
                elif file := next((file for file in files if file.is_file()), None):
                    found[name.asname or name.name] = {(file, name.name if origin else "*")}
        else:
            named = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
            uses = {part.id for part in named}
            uses |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
            stored = {part.id for part in named if isinstance(part.ctx, ast.Store)}
            for name in {node.name} if hasattr(node, "name") else stored:
                found[name] = {*(found.get(name) or ()), *uses - {name}}
    return found


def _leads_to_scale(path: Path, name: str) -> bool:
    seen, waiting = set(), [(path, name)]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        definitions = _definitions(place[0])
        # For a module that is imported as a whole, all of its names.
        for used in definitions if place[1] == "*" else [place[1]]:
            uses = definitions.get(used, set())
            if uses is None:
                return True
            waiting += [use if isinstance(use, tuple) else (place[0], use) for use in uses]
    return False


def has_scale(item: pytest.Item) -> bool:
    """Return whether the scale changes how much of a test runs."""
    if not isinstance(item, pytest.Function):
        return False
    group = item.getparent(pytest.Class)
    name = group.name if group else item.originalname
    return _leads_to_scale(item.path, name) or _leads_to_scale(item.path, "pytestmark")
