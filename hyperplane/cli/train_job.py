"""``hyperplane train --runner``: run a training program as a job of one step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane.cli.job import run_to_end
from hyperplane.cli.job_options import build_job
from hyperplane.cli.options import parse_settings
from hyperplane.cli.training_input import TrainingInput, read_training_input
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import stating_outcome
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.runners.registry import has_shared_files
from hyperplane.ml.training.run_plan import (
    DEFAULT_EVALUATORS,
    DEFAULT_PARAMETER_SERVERS,
    DEFAULT_WORKERS,
    ProgramRequest,
    find_argument_faults,
    find_path_faults,
)

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_records import Job


def run_program_job(
    request: ProgramRequest,
    runner: str,
    runner_options: Sequence[str],
    max_retries: int | None,
    scale_tier: str | None = None,
    config: Path | None = None,
) -> None:
    """Run the job in the foreground, and exit with its code.

    Arguments of the request, and ``runner_options``, replace those of the file ``config``.
    """
    options, faults = parse_settings(runner_options, "--runner-option")
    training = read_training_input(config, scale_tier, faults)
    options = {**training.settings, **options}
    with stating_outcome("nothing was started"):
        job = _build_job(_add_input(request, training), runner, options, max_retries, faults, {
            "timeout": training.timeout, "resources": Resources(gpus=training.gpus),
            "tuning": training.tuning,
        })  # fmt: skip
    run_to_end(job, options)


def _add_input(request: ProgramRequest, training: TrainingInput) -> ProgramRequest:
    """Return a request with what a file says, and the request does not."""
    distributed = request.distributed or any(training.counts.values())
    counts = {
        name: count if getattr(request, name) is None else getattr(request, name)
        for name, count in training.counts.items()
        if distributed
    }
    return replace(
        request,
        **counts,
        distributed=distributed,
        arguments=request.arguments or training.arguments,
        job_dir=training.job_dir if request.job_dir is None else request.job_dir,
    )


def _build_job(
    request: ProgramRequest,
    runner: str,
    options: dict[str, Any],
    max_retries: int | None,
    faults: list[Fault],
    limits: dict[str, Any],
) -> Job:
    counts = ("worker_count", "parameter_server_count", "evaluator_count")
    for name in counts:
        if not request.distributed and getattr(request, name) is not None:
            faults.append(Fault(f"--{name.replace('_', '-')}", "", "needs --distributed"))
    if request.start_port is not None:
        allowed = "no value with --runner, which selects unused ports"
        faults.append(Fault("--start-port", str(request.start_port), allowed))
    if request.fail_fast:
        faults.append(Fault("--fail-fast", "", "no value with --runner, which always does this"))
    package: str | None = None
    root = Path.cwd()
    if request.package_path is not None or has_shared_files(runner):
        path_faults, root = find_path_faults(request)
        if not has_shared_files(runner):  # the module may be in the image only
            path_faults = [fault for fault in path_faults if fault.where == "package_path"]
        faults += path_faults
        package = os.path.abspath(request.package_path or ".")  # noqa: PTH100 - keeps links
    faults += find_argument_faults(request)
    check(faults)
    defaults = dict(
        zip(counts, (DEFAULT_WORKERS, DEFAULT_PARAMETER_SERVERS, DEFAULT_EVALUATORS), strict=True)
    )
    given = {name: getattr(request, name) for name in counts}
    processes = {name: defaults[name] if value is None else value for name, value in given.items()}
    try:
        step = Step(
            name="train",
            kind="train",
            module_name=request.module_name,
            package_path=package,
            job_dir=None if request.job_dir is None else os.fspath(request.job_dir),
            args=tuple(map(str, request.arguments)),
            **(processes if request.distributed else {}),
            **limits,
        )
        pipeline = Pipeline.from_steps(str(request.module_name), [step], root=root)
    except RequestError as error:
        names = {"steps[0].": "", "args": "arguments"}
        raise RequestError(
            [replace(fault, where=_rename(fault.where, names)) for fault in error.faults]
        ) from None
    return build_job(pipeline, max_retries=max_retries, runner=runner, runner_options=options)


def _rename(where: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        where = where.removeprefix(old) if not new else where.replace(old, new, 1)
    return where
