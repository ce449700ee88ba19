"""The table of layers in the documentation matches the imports."""

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import hyperplane

PACKAGE = Path(hyperplane.__file__).parent
PAGE = PACKAGE.parent / "docs" / "explanation" / "architecture.md"


def _module(file):
    """Name of a file's module relative to the package; ``__init__`` is the package itself."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts)


FILES = {_module(file): file for file in sorted(PACKAGE.rglob("*.py"))}


def _rows():
    """Row number -> names in backticks of the table's second column."""
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and cells[0].isdecimal():
            rows[int(cells[0])] = re.findall(r"`([^`]+)`", cells[1])
    return rows


ROWS = _rows()


@functools.cache
def _holders(module):
    """Rows and names of the table that contain a module; a package contains its modules."""
    return [
        (row, name)
        for row, names in ROWS.items()
        for name in names
        if module == name or module.startswith(f"{name}.")
    ]


def _row(module):
    holders = _holders(module)
    return holders[0][0] if holders else None


def _is_bare(file):
    """Whether a file has only a docstring, such as the ``__init__`` of a plain folder."""
    return all(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for node in ast.parse(file.read_text(encoding="utf-8")).body
    )


class _Imports(ast.NodeVisitor):
    """Collects the modules of the package that a module imports, also for type checking."""

    def __init__(self):
        self.found, self.by_name = set(), set()

    def visit_Import(self, node):
        for alias in node.names:
            self._add(alias.name, "")

    def visit_ImportFrom(self, node):
        assert node.level == 0, "imports are absolute here"
        for alias in node.names:
            self._add(node.module, alias.name)

    def visit_Constant(self, node):
        # Modules that are imported by name, such as "hyperplane.cluster:start"; texts that begin
        # with "hyperplane.engines" are keys of the configuration.
        if isinstance(node.value, str) and re.fullmatch(
            r"hyperplane(?!\.engines\b)(\.\w+){2,}(:\w+)?", node.value
        ):
            module = node.value.partition(":")[0].removeprefix("hyperplane.")
            self.by_name |= {module} & set(FILES)

    def _add(self, module, name):
        if module.partition(".")[0] != "hyperplane":
            return
        inside = module.removeprefix("hyperplane").removeprefix(".")
        longest = f"{inside}.{name}".strip(".")
        self.found.add(longest if longest in FILES else inside or "__init__")


@functools.cache
def _visited(file):
    visitor = _Imports()
    visitor.visit(ast.parse(file.read_text(encoding="utf-8")))
    return visitor


def _imports(file, by_name=True):
    visitor = _visited(file)
    return visitor.found | (visitor.by_name if by_name else set())


def test_the_rows_of_the_table_are_numbered():
    assert len(ROWS) > 3
    assert list(ROWS) == list(range(len(ROWS)))


def test_the_table_names_existing_modules_once():
    names = [name for names in ROWS.values() for name in names]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert [name for name in names if name not in FILES] == []


def test_every_module_is_in_one_row():
    wrong = {
        module: _holders(module)
        for module, file in FILES.items()
        if len(_holders(module)) != 1 and not (_is_bare(file) and not _holders(module))
    }
    assert wrong == {}


def test_modules_import_only_from_their_row_and_lower_rows():
    too_high = {
        (module, name): (_row(module), _row(name))
        for module, file in FILES.items()
        for name in _imports(file)
        if _row(module) is not None and _row(name) is not None and _row(name) > _row(module)
    }
    assert too_high == {}


#: Modules of a framework that planning calls; an engine is a package next to them.
PLANNING = {"clusters.dask.framework"}


def _engine_imports():
    found = {name: _imports(FILES[name]) for name in FILES if name.startswith("clusters.dask.")}
    return {name: imports for name, imports in found.items() if name not in PLANNING}


def test_an_engine_does_not_import_the_planning_of_its_framework():
    assert set() == {
        (module, name) for module, found in _engine_imports().items() for name in found & PLANNING
    }


def test_modules_shared_by_frameworks_import_no_framework():
    shared = [name for name in FILES if re.fullmatch(r"clusters\.\w+|cluster|cli\.\w+", name)]
    assert len(shared) > 20
    assert set() == {
        (module, name)
        for module in shared
        if module not in {"clusters.dask", "clusters.registry"}  # the registry has their names
        for name in _imports(FILES[module])
        if name.startswith("clusters.dask")
    }


def test_an_engine_reads_no_configuration_and_chooses_no_size():
    forbidden = {"config", "config_memory", "clusters.planning", "cluster"}
    wrong = {
        (module, name)
        for module, found in _engine_imports().items()
        for name in found
        if name in forbidden or name.startswith("sizing")
    }
    assert wrong == set()


def test_an_engine_imports_no_other_engine():
    wrong = set()
    for module, found in _engine_imports().items():
        if module.count(".") < 3:
            continue
        own = module.split(".")[2]
        allowed = {own, "local"} if own == "cuda" else {own}
        others = {n for n in found if n.count(".") > 2 and n.startswith("clusters.dask.")}
        wrong |= {(module, name) for name in others if name.split(".")[2] not in allowed}
    assert wrong == set()


def test_there_are_no_import_cycles():
    edges = {name: _imports(file, by_name=False) - {"__init__"} for name, file in FILES.items()}
    done = set()

    def walk(name, path):
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in sorted(edges.get(name, ())):
                walk(other, [*path, name])
            done.add(name)

    for name in FILES:
        walk(name, [])


def test_imports_in_functions_and_for_type_checking_are_found(tmp_path):
    file = tmp_path / "sample.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "import hyperplane\n"
        "from hyperplane import config\n"
        "HOME = 'hyperplane.spec.pool:PoolSpec'\n"
        "if TYPE_CHECKING:\n"
        "    from hyperplane.cluster import start\n"
        "else:\n"
        "    from hyperplane.core.units import GB\n"
        "def f():\n"
        "    from hyperplane.sizing.fit import fits\n"
    )
    expected = {"__init__", "cluster", "config", "core.units", "sizing.fit", "spec.pool"}
    assert _imports(file) == expected
