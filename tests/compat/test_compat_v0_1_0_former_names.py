"""Former names of files and modules that 0.1.0 has given to other processes still work."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hyperplane
from hyperplane.clusters import engine
from hyperplane.jobs import runners
from hyperplane.jobs.exporters import base as exporters_base
from hyperplane.jobs.exporters import registry
from hyperplane.jobs.runners import base as runners_base

PACKAGE = Path(hyperplane.__file__).parent
DATA = Path(__file__).with_name("data") / "v0.1.0"


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


@pytest.mark.process
def test_a_queued_array_finds_the_program_of_its_tasks(tmp_path: Path) -> None:
    former = PACKAGE / "jobs" / "runners" / "slurm_task.py"
    queued = DATA / "place" / "slurm" / "101" / "script"
    assert f"hyperplane/jobs/runners/{former.name}" in queued.read_text(encoding="utf-8")
    show = "import sys, os; print(sys.argv[1:], os.environ['OWN'])"
    (tmp_path / "wrapper.py").write_text(show, encoding="utf-8")
    task = b"\0".join([b"prefix", b"1", b"OWN=x", b"program", b"argument"])
    (tmp_path / "tasks").write_bytes(f"7 0 {len(task)}\n\n".encode() + task)
    words = [sys.executable, "-I", "-S", str(former)]
    words += [str(tmp_path / "tasks"), str(tmp_path / "wrapper.py")]
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "7"}
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "['prefix', 'program', 'argument'] x\n", done.stderr


def test_an_exporter_of_another_package_finds_its_interface() -> None:
    with pytest.warns(FutureWarning, match=r"hyperplane\.jobs\.exporters\.base\.Exporter"):
        former = runners_base.Renderer
    assert former is exporters_base.Exporter
    with pytest.warns(FutureWarning, match=r"hyperplane\.jobs\.exporters\.base\.Document"):
        assert runners_base.Document is exporters_base.Document


def test_the_documented_call_renders() -> None:
    with pytest.warns(FutureWarning, match=r"hyperplane\.jobs\.exporters\.registry\.render"):
        assert runners.render is registry.render
    with pytest.raises(AttributeError):
        _ = runners.rendr


@pytest.mark.parametrize(
    ("former", "now", "name"),
    [
        ("hyperplane.jobs.submitting", "hyperplane.jobs.job_control", "new_job"),
        ("hyperplane.jobs.definition.order", "hyperplane.jobs.definition.dependencies", "waves"),
    ],
)
def test_an_import_that_the_documentation_has_shown_still_works(
    former: str, now: str, name: str
) -> None:
    sys.modules.pop(former, None)
    with pytest.warns(FutureWarning, match=re.escape(f"{former} is now {now}")):
        module = importlib.import_module(former)
    assert getattr(module, name) is getattr(importlib.import_module(now), name)


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
