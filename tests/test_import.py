"""What ``import hyperplane`` brings, and what it leaves for later."""

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hyperplane

HEAVY = [
    "distributed",
    "dask.dataframe",
    "gcsfs",
    "matplotlib",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pydantic",
    "rich",
    "typer",
    "xarray",
    "zarr",
]


def _in_new_process(code, **variables):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_heavy_is_loaded():
    code = "import hyperplane, json, sys; print(json.dumps(sorted(sys.modules)))"
    loaded = set(_in_new_process(code))
    assert "hyperplane" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_sizing_and_planning_load_neither_distributed_nor_pandas():
    code = """
import json, sys
import hyperplane
hyperplane.plan_cluster(hyperplane.size_cluster("1GB", "groupby"))
print(json.dumps(sorted(sys.modules)))
"""
    loaded = set(_in_new_process(code))
    assert loaded.isdisjoint({"distributed", "pandas", "pyarrow", "matplotlib", "dask.dataframe"})


@pytest.mark.parametrize("name", hyperplane.__all__)
def test_every_public_name_resolves_and_stays(name):
    found = getattr(hyperplane, name)
    assert found.__name__.removeprefix("hyperplane.") == name
    assert vars(hyperplane)[name] is found


def test_public_names_are_sorted_and_shown():
    assert hyperplane.__all__ == sorted(hyperplane.__all__)
    assert len(set(hyperplane.__all__)) == len(hyperplane.__all__)
    assert set(hyperplane.__all__) <= set(dir(hyperplane))


def test_homes_are_where_the_names_are_made():
    homes = {name: home for home, names in hyperplane._HOMES.items() for name in names}
    assert sorted([*homes, *hyperplane._MODULES]) == hyperplane.__all__
    assert sum(map(len, hyperplane._HOMES.values())) == len(homes)
    for name, home in homes.items():
        assert getattr(importlib.import_module(home), name).__module__ == home


def test_type_checkers_see_the_same_homes():
    tree = ast.parse(Path(hyperplane.__file__).read_text())
    [block] = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {node.module: tuple(alias.name for alias in node.names) for node in block.body}
    assert seen == {"hyperplane": hyperplane._MODULES, **hyperplane._HOMES}


def test_star_import_brings_the_public_names():
    namespace = {}
    exec("from hyperplane import *", namespace)
    assert set(hyperplane.__all__) <= set(namespace)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'hyperplane' has no attribute 'no_such_name'"):
        _ = hyperplane.no_such_name


def test_the_defaults_are_there_and_what_the_user_set_stays(tmp_path):
    (tmp_path / "site.yaml").write_text("hyperplane: {memory: {pause: 0.85}}")
    code = """
import json
import dask.config
dask.config.set({"hyperplane.memory.spill": 0.75})
import hyperplane
print(json.dumps(dask.config.get("hyperplane.memory")))
"""
    shown = _in_new_process(
        code, DASK_CONFIG=str(tmp_path), DASK_HYPERPLANE__MEMORY__TERMINATE="0.9"
    )
    assert shown == {"target": 0.6, "spill": 0.75, "pause": 0.85, "terminate": 0.9}


def test_the_defaults_survive_a_refresh_of_dask():
    code = """
import json
import hyperplane, dask.config
dask.config.refresh()
print(json.dumps([dask.config.get("hyperplane.memory.pause"), len(hyperplane.pools())]))
"""
    assert _in_new_process(code) == [0.8, 9]
