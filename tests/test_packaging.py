"""The built packages contain all files and the documented import names."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml
from scale import FULL, scaled

import hyperplane
from hyperplane.core import config_defaults

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def built(kind: str, folder: Path) -> Path:
    """Build a wheel or sdist, with the build backend and without pip."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory):
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(wheel_file):
    with zipfile.ZipFile(wheel_file) as opened:
        yield opened


@pytest.mark.process
@pytest.mark.parametrize("name", config_defaults.FILES)
def test_the_wheel_contains_the_configuration(wheel, name):
    shipped = wheel.read(f"hyperplane/config_data/{name}")
    assert shipped == (ROOT / "config" / name).read_bytes()
    assert list(yaml.safe_load(shipped)) == ["hyperplane"]


def test_every_file_of_config_is_registered():
    assert {file.name for file in (ROOT / "config").glob("*.yaml")} == set(config_defaults.FILES)


def test_the_wheel_contains_only_the_packages(wheel):
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    own, data = (f"hyperplane-{hyperplane.__version__}.{kind}" for kind in ("dist-info", "data"))
    assert tops == {"hyperplane", "hyperplane_gpu", own, data}
    assert [name for name in wheel.namelist() if name.startswith("hyperplane_gpu/")] == [
        "hyperplane_gpu/__init__.py"
    ]
    modules = {str(file.relative_to(ROOT)) for file in (ROOT / "hyperplane").rglob("*.py")}
    modules.remove("hyperplane/hyperplane_gpu.py")  # the other package
    assert modules <= set(wheel.namelist())
    assert "hyperplane/py.typed" in wheel.namelist()


@pytest.mark.process
@pytest.mark.parametrize("kind", scaled(["wheel"], ["wheel", "editable"]))
def test_an_installation_enables_the_extension_of_the_jupyter_server(kind, tmp_path, wheel_file):
    folder = "jupyter_server_config.d"
    with zipfile.ZipFile(wheel_file if kind == "wheel" else built(kind, tmp_path)) as opened:
        [name] = [each for each in opened.namelist() if ".data/" in each]
        assert name.partition(".data/")[2] == f"data/etc/jupyter/{folder}/hyperplane.json"
        assert opened.read(name) == (ROOT / "config" / folder / "hyperplane.json").read_bytes()


IMPORTS = """
import hyperplane_gpu.notebook_common as nc
from hyperplane_gpu.notebook_common import initialize_cluster
from hyperplane_gpu import notebook_common
import hyperplane
assert nc is notebook_common is hyperplane.notebook_common
assert initialize_cluster is hyperplane.initialize_cluster
import hyperplane_gpu
print(hyperplane_gpu.__file__, hyperplane.__file__, sep="\\n")
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", scaled(["wheel"], ["wheel", "editable"]))
def test_hyperplane_gpu_provides_the_same_notebook_common(kind, tmp_path, wheel_file):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel_file if kind == "wheel" else built(kind, tmp_path)) as opened:
        opened.extractall(site)
    # As in site-packages: first the folder, then the entries of its .pth files.
    paths = [str(site)]
    for file in site.glob("*.pth"):
        paths += [line for line in file.read_text().splitlines() if Path(line).is_dir()]
    program = f"import sys; sys.path[:0] = {paths}\n{IMPORTS}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    gpu, package = done.stdout.split()
    assert Path(gpu).is_relative_to(site)
    assert Path(package).is_relative_to(site if kind == "wheel" else ROOT)


@pytest.mark.skipif(not FULL, reason="builds two packages: at full scale")
@pytest.mark.process
def test_the_sdist_contains_the_sources_of_a_wheel(tmp_path):
    with tarfile.open(built("sdist", tmp_path)) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "hyperplane/__init__.py"} <= names
    assert {f"config/{name}" for name in config_defaults.FILES} <= names


def test_the_version_is_the_newest_in_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(?P<version>[^]]+)\] - ", text, re.MULTILINE)
    assert newest is not None
    assert newest["version"] == hyperplane.__version__


def test_the_declared_python_versions_are_consistent():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert declared["project"]["requires-python"] == ">=3.11"
    assert declared["tool"]["ruff"]["target-version"] == "py311"
    assert declared["tool"]["mypy"]["python_version"] == "3.11"
    classifiers = declared["project"]["classifiers"]
    versions = [name for name in classifiers if re.search(r":: Python :: 3\.", name)]
    assert versions == ["Programming Language :: Python :: 3.11"]
    for page in ("README.md", "docs/tutorial/first-cluster.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert re.findall(r"Python (3\.\d+) or newer", text) == ["3.11"], page


def test_the_extras_notebook_and_test_include_widgets():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = extras["project"]["optional-dependencies"]
    for extra in ("notebook", "test"):
        names = {re.split(r"[\[>=<]", name)[0] for name in extras[extra]}
        assert {"ipykernel", "ipywidgets"} <= names, extra


def test_the_extra_dev_includes_all_extras_for_one_environment():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]

    def held(name):
        inside = {
            inner
            for entry in extras[name]
            for names in re.findall(r"^hyperplane\[([\w,-]+)\]$", entry)
            for inner in names.split(",")
        }
        return {name}.union(*(held(inner) for inner in inside))

    assert set(extras) - held("dev") == {"gpu", "ray", "raydp", "spark", "tensorflow", "torch"}


@pytest.mark.process
def test_the_console_script_is_installed():
    (script,) = entry_points(group="console_scripts", name="hyperplane")
    assert callable(script.load())
    program = Path(sys.executable).with_name("hyperplane")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hyperplane", hyperplane.__version__]


def test_the_oldest_tested_dask_is_the_oldest_allowed():
    text = (ROOT / "tests" / "oldest.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = dict(
        re.findall(r"^([\w-]+)(?:\[.*\])?>=([\d.]+),<", "\n".join(project["dependencies"]), re.M)
    )
    assert bounds == {"dask": pinned["dask"], "distributed": pinned["distributed"]}
