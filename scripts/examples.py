"""Run the examples of the documentation as tests.

These blocks of a Markdown page run in order, in this process and in a separate folder for each
page:

- ``python``: a program, or a session with ``>>>`` whose output is compared;
- ``console``: each ``$ hyperplane ...``; the output below it is compared. A command with variables
  before it (``NAME=value hyperplane ...``) runs in a new process, because Dask reads the
  environment when it is imported;
- ``yaml``: Dask configuration, which is validated and applies to the rest of the page.

A block that cannot run has a comment above it: ``<!-- skip: next "the reason" -->``.
"""

from __future__ import annotations

import doctest
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask.config
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser
from typer.testing import CliRunner

ROOT = str(Path(__file__).resolve().parents[1])
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TIMEOUT = 120


def run_console(example: Example) -> str | None:
    """Run the commands of a block; return a text about the first one that fails or differs."""
    for block in ("\n" + str(example.parsed)).split("\n$ ")[1:]:
        command, _, want = block.partition("\n")
        words = shlex.split(command, comments=True)
        settings = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            settings[name] = value
        if words[0] != "hyperplane":
            return f"only hyperplane can run; add a skip comment above the block: $ {command}"
        run = run_in_new_process if settings else run_in_this_process
        code, got = run(words[1:], {"COLUMNS": "100", "NO_COLOR": "1", **settings})
        matches = not want.strip() or doctest.OutputChecker().check_output(want, got, FLAGS)
        if code or not matches:
            return f"$ {command}\nexit {code}, output:\n{got}\nshown:\n{want}"
    return None


def run_in_this_process(arguments: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Run a command in this process, which is faster; return exit code and output."""
    from hyperplane.cli import app

    done = CliRunner().invoke(app, arguments, env=variables, prog_name="hyperplane")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def run_in_new_process(arguments: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Run a command in a new process; return exit code and output."""
    done = subprocess.run(  # noqa: S603 - a command of the documentation
        [Path(sys.executable).with_name("hyperplane"), *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout


def apply_yaml(example: Example) -> str | None:
    """Write a block of configuration to the Dask configuration folder and validate it."""
    from hyperplane import config
    from hyperplane.clusters.registry import ENGINES

    folder = Path(os.environ["DASK_CONFIG"])
    file = folder / f"{len(list(folder.iterdir()))}.yaml"
    file.write_text(str(example.parsed), encoding="utf-8")
    dask.config.refresh(paths=[str(folder)])
    faults = config.faults(ENGINES)
    return "\n".join(map(str, faults)) or None


def enter(namespace: dict[str, Any]) -> None:
    """Start a page: change to a new folder, with a new Dask configuration folder."""
    folder = tempfile.TemporaryDirectory(prefix="hyperplane-page-")
    namespace["__page__"] = (folder, Path.cwd(), os.environ.get("DASK_CONFIG"))
    dask_folder = Path(folder.name) / ".dask"
    dask_folder.mkdir()
    os.environ["DASK_CONFIG"] = str(dask_folder)
    os.chdir(folder.name)


def leave(namespace: dict[str, Any]) -> None:
    """End a page: restore folder and configuration; raise an error for an open cluster."""
    from distributed.core import Status
    from distributed.deploy.cluster import Cluster

    folder, before, dask_folder = namespace.pop("__page__")
    os.chdir(before)
    folder.cleanup()
    del os.environ["DASK_CONFIG"]
    if dask_folder is not None:
        os.environ["DASK_CONFIG"] = dask_folder
    dask.config.refresh()
    open_clusters = [
        (name, value)
        for name, value in namespace.items()
        if isinstance(value, Cluster) and value.status == Status.running
    ]
    for _, cluster in open_clusters:
        cluster.close()
    if open_clusters:
        names = ", ".join(name for name, _ in open_clusters)
        raise AssertionError(f"left open: {names}")


PAGE_PARSERS = [
    PythonCodeBlockParser(doctest_optionflags=FLAGS),
    CodeBlockParser("console", run_console),
    CodeBlockParser("yaml", apply_yaml),
    SkipParser(),
]

pages = Sybil(
    parsers=PAGE_PARSERS,
    path=ROOT,
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
    setup=enter,
    teardown=leave,
)
docstrings = Sybil(
    parsers=[DocTestParser(FLAGS)],
    path=ROOT,
    patterns=[
        "hyperplane/*.py",
        "hyperplane/*/*.py",
        "hyperplane/*/*/*.py",
        "hyperplane/*/*/*/*.py",
    ],
)
