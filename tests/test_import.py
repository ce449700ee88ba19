"""Public names of ``import hyperplane``, and imports on first use."""

import ast
import importlib
import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hyperplane
from hyperplane import notebook_common
from hyperplane.errors import UnsupportedModule

ROOT = Path(__file__).parents[1]
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
PUBLIC_MODULES = (
    "array", "asl", "bag", "dataframe", "jobs", "ml", "notebook_common", "orca", "orca.data",
    "ray_common", "spark",
)  # fmt: skip


def _in_new_process(code, folder=None, **variables):
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.process
def test_import_and_planning_load_no_heavy_packages():
    code = """
import json, sys
import hyperplane
imported = sorted(sys.modules)
hyperplane.plan_cluster(hyperplane.size_cluster("1GB", "groupby"))
print(json.dumps([imported, sorted(sys.modules)]))
"""
    imported, planned = map(set, _in_new_process(code))
    assert "hyperplane" in imported
    assert imported.isdisjoint(HEAVY)
    assert planned.isdisjoint({"distributed", "pandas", "pyarrow", "matplotlib", "dask.dataframe"})


@pytest.mark.slow
@pytest.mark.process
def test_saving_and_sharding_do_not_import_dask_dataframe(tmp_path):
    code = """
import json, sys
import hyperplane, pandas
hyperplane.save({"n": 1}, "one.json")
hyperplane.save(pandas.DataFrame({"n": [1, 2]}), "table.parquet")
hyperplane.save(pandas.DataFrame({"n": [1, 2]}), "share", shard=(0, 2))
saved = sorted(sys.modules)
assert hyperplane.shard_rows("table.parquet", 2, 0).n.to_list() == [1]
print(json.dumps([saved, sorted(sys.modules)]))
"""
    saved, read = map(set, _in_new_process(code, tmp_path))
    assert saved.isdisjoint({"polars"})
    assert read.isdisjoint({"distributed", "dask.array", "dask.dataframe"})
    assert len(list(tmp_path.iterdir())) >= 3


@pytest.mark.parametrize("name", hyperplane.__all__)
def test_every_public_name_resolves_and_is_cached(name):
    found = getattr(hyperplane, name)
    assert found.__name__.removeprefix("hyperplane.") == name
    assert vars(hyperplane)[name] is found


PUBLIC = [
    "array", "bag", "dataframe", "errors", "jobs", "notebook_common", "storage", "utils",
]  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_dir_of_a_public_module_has_only_public_names(name):
    module = importlib.import_module(f"hyperplane.{name}")
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, public) for public in dir(module))


def test_dir_of_the_package_has_only_public_names_and_modules():
    shown = set(dir(hyperplane))
    assert shown == {*hyperplane.__all__, *hyperplane._OTHER_MODULES, "__version__"}
    assert set(PUBLIC) <= shown


@pytest.mark.parametrize("jedi", [True, False])
@pytest.mark.parametrize("name", ["hyperplane", *(f"hyperplane.{name}" for name in PUBLIC)])
def test_tab_completion_offers_only_public_names(name, jedi):
    from IPython.core.completer import IPCompleter, provisionalcompleter

    module = importlib.import_module(name)
    completer = IPCompleter(namespace={"module": module}, use_jedi=jedi)
    with provisionalcompleter():
        offered = {completion.text for completion in completer.completions("module.", 7)}
    assert {text.lstrip(".") for text in offered} == set(dir(module)) - {"__version__"}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("name", sorted(hyperplane._OTHER_MODULES | hyperplane._SEPARATE_MODULES))
def test_other_public_modules_need_no_separate_import(name):
    code = f"import hyperplane, json; print(json.dumps(hyperplane.{name}.__name__))"
    assert _in_new_process(code) == f"hyperplane.{name}"


def _modules_of_extras():
    """Modules of this environment that an installation without extras does not have."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = set()
    _add_packages(declared["dependencies"], "", required)
    extras = chain.from_iterable(declared["optional-dependencies"].values())
    optional = {canonicalize_name(Requirement(each).name) for each in extras} - required
    provided = packages_distributions().items()
    return sorted(
        module
        for module, names in provided
        if {canonicalize_name(each) for each in names} & optional
    )


def _add_packages(requirements, extra, found):
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for each in ["", *requirement.extras]:
            if (name, each) not in found:
                found.update([name, (name, each)])
                _add_packages(requires(name) or [], each, found)


@pytest.mark.slow
@pytest.mark.process
def test_public_modules_need_no_package_of_an_extra():
    hidden = _modules_of_extras()
    assert {"cryptography", "asyncssh"} <= set(hidden)
    code = f"""
import importlib, json, sys
for name in {hidden!r}:
    sys.modules[name] = None
importlib.import_module("hyperplane.cli")
names = []
for name in {PUBLIC_MODULES!r}:
    module = importlib.import_module(f"hyperplane.{{name}}")
    names += [getattr(module, each).__name__ for each in getattr(module, "__all__", ())
              if hasattr(getattr(module, each), "__name__")]
from hyperplane.clusters import registry
for name in registry.ENGINES.names():
    registry.load(name).available()  # with a reason, and not an error
print(json.dumps(names))
"""
    assert {"XShards", "initialize_ray_cluster"} <= set(_in_new_process(code))


@pytest.mark.parametrize(
    ("statement", "module", "provided"),
    [
        ("from hyperplane import hyper_nlp as nlp", "hyper_nlp", "hyperplane.save"),
        ("from hyperplane.hyper_nlp import get_topics", "hyper_nlp", "scikit-learn"),
        ("import hyperplane.hyper_nlp", "hyper_nlp", "pypdf"),
    ],
)
def test_a_module_that_is_not_provided_names_a_replacement(statement, module, provided):
    for _ in range(2):
        with pytest.raises(UnsupportedModule, match=f"hyperplane.{module} is not") as caught:
            exec(statement)
        assert caught.value.module == f"hyperplane.{module}"
        assert provided in str(caught.value)


def test_both_documented_names_of_the_graphql_call_exist():
    assert notebook_common.graphql_operations is notebook_common.graphql_operation


def test_the_slack_helper_is_in_both_modules(monkeypatch):
    assert notebook_common.SlackHelper is hyperplane.utils.SlackHelper
    monkeypatch.setenv("SLACK_TOKEN", "xoxb-1")
    assert callable(notebook_common.SlackHelper().post_message)


def test_public_names_are_sorted_and_in_dir():
    assert hyperplane.__all__ == sorted(hyperplane.__all__)
    assert len(set(hyperplane.__all__)) == len(hyperplane.__all__)
    assert set(hyperplane.__all__) <= set(dir(hyperplane))


@pytest.mark.parametrize("name", ["hyperplane", "hyperplane.jobs"])
def test_a_stub_names_the_defining_module_of_each_name(name):
    package = importlib.import_module(name)
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = [(alias.name, node.module) for node in imports for alias in node.names]
    # "import x as x" exports a name for type checkers.
    assert all(alias.name == alias.asname for node in imports for alias in node.names)
    assert {public for public, _ in homes} == {*dir(package)} - {"__version__"}
    assert len(dict(homes)) == len(homes)
    for public, home in homes:
        if home:
            target = getattr(importlib.import_module(f"{name}.{home}"), public)
            assert getattr(package, public) is target
            assert target.__module__ == f"{name}.{home}"
        else:
            assert getattr(package, public) is importlib.import_module(f"{name}.{public}")


def test_star_import_brings_the_public_names():
    namespace = {}
    exec("from hyperplane import *", namespace)
    assert set(hyperplane.__all__) <= set(namespace)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"has no attribute 'no_such_name'$"):
        _ = hyperplane.no_such_name
    with pytest.raises(AttributeError, match=r"no attribute 'size'; did you mean size_cluster\?"):
        _ = hyperplane.size


@pytest.mark.process
def test_defaults_do_not_override_values_of_the_user(tmp_path):
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


@pytest.mark.process
def test_defaults_remain_after_dask_config_refresh():
    code = """
import json
import hyperplane, dask.config
dask.config.refresh()
print(json.dumps([dask.config.get("hyperplane.memory.pause"), len(hyperplane.pools())]))
"""
    assert _in_new_process(code) == [0.8, len(hyperplane.pools())]
