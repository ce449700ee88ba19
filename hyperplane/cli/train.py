"""``hyperplane train``: run a training program on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import stating_outcome

if TYPE_CHECKING:
    from hyperplane.ml.training.run_processes import StopRequest

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def train(
    module_name: Annotated[
        str, typer.Option(metavar="MODULE", help="Module to run, such as trainer.task.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENTS", help="Arguments of the program, after --."),
    ] = None,
    package_path: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the package; the program runs in its parent. By default the current "
            "directory.",
        ),
    ] = None,
    job_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", help="Passed to the program as --job-dir."),
    ] = None,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="Run a primary, workers and parameter servers; else one process."
        ),
    ] = False,
    worker_count: Annotated[
        int | None, typer.Option(help="Workers besides the primary; by default 2.")
    ] = None,
    parameter_server_count: Annotated[
        int | None, typer.Option(help="Parameter servers; by default 2.")
    ] = None,
    evaluator_count: Annotated[
        int | None, typer.Option(help="Evaluators; by default none.")
    ] = None,
    start_port: Annotated[
        int | None, typer.Option(help="First of the contiguous ports; by default 27182.")
    ] = None,
    fail_fast: Annotated[
        bool,
        typer.Option(
            "--fail-fast", help="End the run when a process other than the primary fails."
        ),
    ] = False,
    runner: Annotated[
        str | None,
        typer.Option(
            metavar="local|slurm|kubernetes|vertex",
            help="Run it as a job of this runner, whose processes start and end together.",
        ),
    ] = None,
    runner_option: Annotated[
        list[str] | None,
        typer.Option(
            "--runner-option",
            "--option",
            metavar="NAME=VALUE",
            help="With --runner kubernetes: root, or a setting of the engine such as image; with "
            "--runner vertex: a setting of hyperplane.runners.vertex; may be repeated.",
        ),
    ] = None,
    max_retries: Annotated[
        int | None,
        typer.Option(help="With --runner: maximum restarts of all processes, 0 to 10."),
    ] = None,
    scale_tier: Annotated[
        str | None,
        typer.Option(
            metavar="BASIC|CUSTOM",
            help="With --runner vertex: one machine n1-standard-4, or the machines of --config.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --runner vertex: YAML or JSON file with trainingInput, as for gcloud "
            "ai-platform jobs submit training; other options replace its values.",
        ),
    ] = None,
) -> None:
    """Run a training program on this machine, with TF_CONFIG as Cloud ML sets it.

    The exit code is that of the primary, or 128 plus the number of the signal that ended it; with
    --runner that of hyperplane job run.
    """
    from hyperplane.ml.training.run_plan import ProgramRequest, plan_run
    from hyperplane.ml.training.run_processes import ProgramRun, StopRequest

    request = ProgramRequest(
        module_name=module_name,
        arguments=arguments or [],
        package_path=package_path,
        job_dir=job_dir,
        distributed=distributed,
        worker_count=worker_count,
        parameter_server_count=parameter_server_count,
        evaluator_count=evaluator_count,
        start_port=start_port,
        fail_fast=fail_fast,
    )
    job_options = {"--runner-option": runner_option, "--max-retries": max_retries}
    input_options = {"--scale-tier": scale_tier, "--config": config}
    if runner != "vertex":
        check(
            Fault(name, "", "only with --runner vertex")
            for name, value in input_options.items()
            if value is not None
        )
    if runner is not None:
        from hyperplane.cli.train_job import run_program_job

        run_program_job(request, runner, runner_option or [], max_retries, scale_tier, config)
        return
    check(
        Fault(name, "", "only with --runner")
        for name, value in job_options.items()
        if value is not None
    )
    with stating_outcome("no process was started"):
        plan = plan_run(request)
    if ignored := [f"--{name.replace('_', '-')}" for name in request.ignored_options()]:
        typer.echo(f"note: {', '.join(ignored)}: ignored without --distributed", err=True)
    stop = StopRequest()
    with _handling_signals(stop):
        code = ProgramRun(plan, stop).run()
    raise typer.Exit(code if code >= 0 else 128 - code)


@contextlib.contextmanager
def _handling_signals(stop: StopRequest) -> Iterator[None]:
    """Record Ctrl-C, SIGTERM and SIGHUP in a request; a second signal ends the run at once."""

    def request_stop(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.number is not None:
            stop.immediate = True
        stop.forward = number != signal.SIGINT or not _is_foreground()
        stop.number = signal.Signals(number)

    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    # nohup ignores SIGHUP, and a shell script SIGINT of commands in the background.
    handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, request_stop) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_foreground() -> bool:
    """Return whether a terminal sends Ctrl-C to this process and to the primary."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
