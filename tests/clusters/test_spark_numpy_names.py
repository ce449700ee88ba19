"""Names that NumPy 2 has removed are there for pyspark, in programs that Python starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hyperplane.clusters.spark.start_path.hyperplane_numpy_names import (
    extend_python_path,
    restore_python_path,
)

PYSPARK_MODULES = {
    "pyspark/__init__.py": "",
    "pyspark/pandas.py": "import numpy as np\n"
    "found = (np.NaN, np.float_, np.string_, np.unicode_)\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules like those of pyspark."""
    for name, text in PYSPARK_MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    path = extend_python_path({"PYTHONPATH": str(folder)})
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.process
def test_the_names_are_added_when_a_module_needs_them(folder: Path) -> None:
    done = run(
        folder,
        "import sys\n"
        "print('numpy' in sys.modules, 'hyperplane' in sys.modules)\n"
        "import numpy as np\n"
        "print(hasattr(np, 'NaN') == (int(np.__version__.split('.')[0]) < 2))\n"
        "import pyspark.pandas\n"
        "print(pyspark.pandas.found == (np.nan, np.float64, np.bytes_, np.str_))\n",
    )
    assert done.stdout.split() == ["False", "False", "True", "True"], done.stderr
    assert done.stderr == ""


@pytest.mark.process
def test_the_start_program_of_the_user_runs_too(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("print('user', __name__, __file__)\n")
    done = run(folder, "import pyspark.pandas\nprint(len(pyspark.pandas.found))\n")
    expected = ["user", "sitecustomize", str(folder / "sitecustomize.py"), "4"]
    assert done.stdout.split() == expected, done.stderr
    assert done.stderr == ""


def test_the_folder_is_in_the_path_once_and_first() -> None:
    path = extend_python_path({"PYTHONPATH": os.pathsep.join(["/a", "", "/b"])})
    first, *others = path.split(os.pathsep)
    assert Path(first, "sitecustomize.py").is_file()
    assert others == ["/a", "/b"]
    assert extend_python_path({"PYTHONPATH": path}) == path
    assert extend_python_path({}) == first


def test_the_folder_is_removed_and_what_the_program_has_added_remains() -> None:
    changed = {"PYTHONPATH": os.pathsep.join(["/c", extend_python_path({"PYTHONPATH": "/a"})])}
    restore_python_path(changed)
    assert changed == {"PYTHONPATH": os.pathsep.join(["/c", "/a"])}
    alone = {"PYTHONPATH": extend_python_path({})}
    restore_python_path(alone)
    assert alone == {}
