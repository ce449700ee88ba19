"""Checks before a cluster starts as jobs of Slurm: Python, the shared folder, the options."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import cast

from hyperplane.clusters.dask.slurm.script import render
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.environment import (
    EnvironmentRequest,
    PreflightEnvironment,
    describe_here,
    parse_output,
    program_command,
)
from hyperplane.guard.preflight.missing_modules import check_modules
from hyperplane.guard.preflight.paths import probe_folder
from hyperplane.guard.preflight.ports import check_dashboard_port, check_interfaces
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.guard.preflight.versions import compare_versions
from hyperplane.platforms.local.file_systems import file_system_type
from hyperplane.platforms.slurm.commands import run_command_async
from hyperplane.platforms.slurm.partitions import check_script
from hyperplane.platforms.slurm.shared_folder import shared_folder
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SlurmSettings

_PYTHON, _FOLDER = "hyperplane.engines.slurm.python", "hyperplane.engines.slurm.shared_folder"
_NODES = "the nodes"
_UNREACHED = (
    "no node was reached: versions and modules are those of {} on this machine, and whether the "
    "nodes have the same, their memory and their disks were not checked"
)


def list_checks(plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
    """Return the checks of a plan."""
    settings = cast(SlurmSettings, plan.settings)
    return [
        Check("job", partial(_check_job, plan)),
        Check("python", partial(_check_python, settings, request)),
        Check("shared folder", lambda _: _check_shared_folder(settings)),
        Check("dashboard port", lambda _: check_dashboard_port(plan.dashboard_port)),
    ]


def _check_job(plan: ClusterPlan, deadline: CheckDeadline) -> Iterator[PreflightFinding]:
    """Let Slurm check the options of a job, such as its partition and limits, without a job."""
    refusal = deadline.run(check_script(render(plan), deadline.remaining))
    if refusal is None:
        yield PreflightFinding("job", "ok", "Slurm accepts the options of the jobs")
    elif refusal.certain:
        advice = (
            "request fewer cores or less memory per node, set another partition, or change other "
            "settings in hyperplane.engines.slurm"
        )
        text = f"sbatch refused the job: {refusal.message}"
        yield PreflightFinding("job", "fault", text, advice)
    else:
        text = f"Slurm cannot start the job now: {refusal.message}"
        yield PreflightFinding("job", "warning", text)


def _check_python(
    settings: SlurmSettings, request: PreflightRequest, deadline: CheckDeadline
) -> Iterator[PreflightFinding]:
    """Run Python of the nodes here, because it should be on a disk that they share.

    That it fails here is a warning: it may be a program, such as a container, of the nodes only.
    """
    asked = request.for_modules()
    here = describe_here(EnvironmentRequest())
    python = settings.python or sys.executable
    yield from check_interfaces(
        settings.interface, settings.locate("interface"), {"this machine": here}
    )
    if settings.prologue:
        text = f"the prologue may change the environment of {python}; it runs on the nodes only"
        yield PreflightFinding("python", "unchecked", text)
        return
    try:
        command = program_command(python, asked)
        result = deadline.run(
            run_command_async(command, timeout=deadline.remaining, kill_on_cancel=True)
        )
    except FileNotFoundError:
        text = f"{python} is absent on this machine, and may be absent on the nodes"
        yield PreflightFinding("python", "warning", text, f"check {_PYTHON}")
        return
    except TimeoutError:
        raise
    except OSError as error:
        text = f"{python} cannot be run on this machine: {error.strerror}"
        yield PreflightFinding("python", "warning", text, f"check {_PYTHON}")
        return
    environment = parse_output(result.output)
    if environment is None:
        text = f"{python} is no working Python on this machine: {result.errors.strip()[-200:]}"
        yield PreflightFinding("python", "warning", text, f"check {_PYTHON}")
        return
    workers: dict[str, PreflightEnvironment] = {_NODES: environment}
    versions = {_NODES: environment.versions}
    yield PreflightFinding("nodes", "unchecked", _UNREACHED.format(python))
    yield from compare_versions(here.versions, versions, settings.versions == "refuse")
    yield from check_modules(request.program, workers, request.needed, request.sync)


def _check_shared_folder(settings: SlurmSettings) -> Iterator[PreflightFinding]:
    folder = shared_folder(settings)
    error = probe_folder(str(folder))
    if error is not None:
        text = f"{_FOLDER} = {folder} cannot be created or written: {error}"
        advice = "set it to a folder that you can write to here and on the nodes"
        yield PreflightFinding("shared folder", "fault", text, advice)
        return
    kind = file_system_type(folder)
    text = f"{folder} can be written from this machine"
    yield PreflightFinding("shared folder", "ok", f"{text} ({kind or 'file system unknown'})")
