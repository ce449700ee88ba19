"""Spark, Java and pandas of this environment: where they are, and whether they fit together."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from packaging.version import Version

from hyperplane.core.optional import is_installed

#: The version of Spark whose private names ``driver.py`` uses; the one of the tests is 3.5.7.
_SPARK = "3.5"
#: Versions of Java on which Spark 3.5 runs.
_JAVA = (8, 11, 17)
_INSTALL_JAVA = (
    "install Java 17, on Debian with apt-get install openjdk-17-jre-headless, and set JAVA_HOME to "
    "its folder if it is not the first java of PATH"
)
_INSTALL = 'pip install "hyperplane[spark]" in a separate environment'
_SECONDS = 60


def find_problem(java_advice: str = "") -> str:
    """Return why Spark cannot be used in this environment, and what to do; empty if it can.

    ``java_advice`` is added if the reason is Java.
    """
    if not is_installed("pyspark"):
        return 'Spark is not installed: pip install "hyperplane[spark]"'
    version = importlib.metadata.version("pyspark")
    if not version.startswith(f"{_SPARK}."):
        return f"pyspark {version} is installed; expected {_SPARK}: {_INSTALL}"
    pandas = importlib.metadata.version("pandas")
    if Version(pandas).major >= 3:
        return f"pandas {pandas} is installed; pyspark {version} needs pandas 2: {_INSTALL}"
    if problem := _find_problem_of_home(version):
        return problem
    problem = _find_problem_of_java()
    return problem and problem + java_advice


def find_home() -> Path:
    """Return the folder of Spark: ``SPARK_HOME``, or that of the package pyspark."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None  # noqa: S101 - for mypy; find_problem reports a missing package
    assert spec.origin is not None  # noqa: S101
    return Path(spec.origin).parent


def find_scala_version(home: Path) -> str:
    """Return the version of Scala of a Spark; empty if the folder has no Spark.

    Examples
    --------
    >>> find_scala_version(Path("/no/such/folder"))
    ''
    """
    return _find_core(home).partition("_")[2].partition("-")[0]


def _find_core(home: Path) -> str:
    """Return a name such as ``spark-core_2.12-3.5.7``; empty if the folder has no Spark."""
    return next((jar.stem for jar in sorted(home.glob("jars/spark-core_*.jar"))), "")


def _find_problem_of_home(version: str) -> str:
    home = find_home()
    core = _find_core(home)
    if core.rpartition("-")[2] == version:
        return ""
    found = f"has {core}" if core else "has no folder jars with Spark"
    return (
        f"SPARK_HOME={home} {found}; expected version {version}, that of the package pyspark: "
        "unset SPARK_HOME to use the Spark of the package"
    )


def find_java() -> str:
    """Return the path of ``java``, from ``JAVA_HOME`` or else ``PATH``; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or ""


def _find_problem_of_java() -> str:
    home, program = os.environ.get("JAVA_HOME"), find_java()
    if not program:
        return f"Java is not installed: {_INSTALL_JAVA}"
    where = f"JAVA_HOME={home}" if home else program
    try:
        found = _read_java_version(program)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{where} does not run ({error}): {_INSTALL_JAVA}"
    if found in _JAVA:
        return ""
    versions = " or ".join(map(str, _JAVA))
    shown = found if found is not None else "of an unknown version"
    return f"{where} is Java {shown}; Spark {_SPARK} needs {versions}: {_INSTALL_JAVA}"


@functools.lru_cache
def _read_java_version(program: str) -> int | None:
    """Return the major version of Java; None if its output is unknown."""
    done = subprocess.run(  # noqa: S603 - a list of arguments, and no shell
        [program, "-XX:-UsePerfData", "-version"],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else None
