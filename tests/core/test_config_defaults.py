"""The shipped YAML files as Dask defaults."""

import subprocess
import sys
from pathlib import Path

import dask.config
import pytest
import yaml

from hyperplane.core import config_defaults

ROOT = Path(__file__).parents[2]


def test_every_shipped_file_is_registered():
    assert {file.name for file in config_defaults.folder().glob("*.yaml")} == set(
        config_defaults.FILES
    )


def test_the_wheel_contains_every_shipped_file():
    pyproject = (ROOT / "pyproject.toml").read_text()
    for name in config_defaults.FILES:
        assert f'"config/{name}" = "hyperplane/config_data/{name}"' in pyproject


def test_each_file_has_one_section_with_the_name_of_the_file():
    for name in config_defaults.FILES:
        content = config_defaults.load_file(name)
        assert list(content) == ["hyperplane"]
        assert list(content["hyperplane"]) == [Path(name).stem]
        assert content == yaml.safe_load((config_defaults.folder() / name).read_text())


def test_the_folder_of_a_wheel_is_used_if_it_exists(tmp_path, monkeypatch):
    package = tmp_path / "hyperplane"
    (package / "core").mkdir(parents=True)
    file = package / "core" / "config_defaults.py"
    monkeypatch.setattr(config_defaults, "__file__", str(file))
    assert config_defaults.folder() == tmp_path / "config"
    (package / "config_data").mkdir()
    assert config_defaults.folder() == package / "config_data"


def test_registering_does_not_change_values_of_the_user():
    with dask.config.set({"hyperplane.memory.pause": 0.85}):
        config_defaults.register()
        assert dask.config.get("hyperplane.memory.pause") == 0.85
        assert dask.config.get("hyperplane.memory.spill") == 0.70


def test_changing_the_configuration_does_not_change_shipped_values():
    with dask.config.set({"hyperplane.pools.pool_16_16.cores": 99}):
        shipped = config_defaults.load_file("pools.yaml")["hyperplane"]["pools"]["pool_16_16"]
        assert shipped["cores"] == 16


#: A setting with defaults of a package, the package, and another setting of it.
LATE_DEFAULTS = [
    ("distributed.worker.memory.pause", "distributed", "distributed.nanny.environ"),
    ("jobqueue.slurm.cores", "dask_jobqueue", "jobqueue.slurm.memory"),
    ("gateway.address", "dask_gateway", "gateway.public-address"),
    ("kubernetes.name", "dask_kubernetes", "kubernetes.namespace"),
]


@pytest.mark.process
def test_defaults_of_a_package_imported_within_config_set_remain_after_it():
    program = f"""
import importlib, sys
import dask, hyperplane
for setting, package, other in {LATE_DEFAULTS}:
    with dask.config.set({{setting: 0.5}}):
        assert package not in sys.modules
        importlib.import_module(package)
        assert dask.config.get(setting) == 0.5
        within = dask.config.get(other)
    assert dask.config.get(setting) != 0.5, setting
    assert dask.config.get(other) == within
"""
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr.decode()
