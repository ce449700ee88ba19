"""Former names of files and modules that 0.1.0 has given to other processes still work."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import hyperplane
from hyperplane.clusters import engine

PACKAGE = Path(hyperplane.__file__).parent


@pytest.mark.process
def test_a_rendered_script_finds_the_program_that_retries(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    step = f"import pathlib, sys; t = pathlib.Path({str(tried)!r}); first = not t.exists()"
    step += "; t.touch(); sys.exit(7 if first else 0)"
    former = PACKAGE / "jobs" / "runners" / "again.py"
    words = [sys.executable, "-I", str(former), "0.1,0.1", "2,64", sys.executable, "-c", step]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, tried.exists()) == (0, True)
    assert "exit code 7" in done.stderr


def test_an_engine_of_another_package_finds_its_interface() -> None:
    sys.modules.pop("hyperplane.engines.base", None)
    with pytest.warns(FutureWarning, match=r"hyperplane\.clusters\.engine"):
        base = importlib.import_module("hyperplane.engines.base")
    assert base.Started is engine.StartedCluster
    assert (base.Availability, base.Renders) == (engine.Availability, engine.SupportsRender)


@pytest.mark.parametrize(
    ("former", "attribute"),
    [
        ("dashboard_path", "routes"),
        ("dask_notices", "dask_setup"),
        ("lazy_dashboard", "routes"),
        ("parent_death", "dask_setup"),
        ("worker_memory", "dask_setup"),
    ],
)
def test_a_cluster_of_0_1_0_starts_more_workers_after_an_upgrade(
    former: str, attribute: str
) -> None:
    # Dask imports the modules of preloads and routes by these names in each new process.
    assert hasattr(importlib.import_module(f"hyperplane.engines.{former}"), attribute)
