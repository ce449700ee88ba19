"""``hyperplane job rehearse``: run the tasks of a job here as another system would."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hyperplane.cli.job_options import (
    FileArgument,
    ParametersOption,
    RunnerOptionsOption,
    build_job,
)
from hyperplane.cli.options import parse_settings
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import stating_outcome
from hyperplane.jobs.job_progress import to_log_line
from hyperplane.jobs.pipeline_sizes import with_sizes

if TYPE_CHECKING:
    from hyperplane.jobs.runners.rehearsal import RehearsedRunner
    from hyperplane.jobs.runners.rehearsed_task import TaskOutcome

#: The runners whose tasks can be rehearsed.
_RUNNERS = ("aws-batch", "vertex", "cloud-run", "glue", "emr", "emr-serverless")
#: Lines of the log of a task that are shown.
_LINES = 20
_MIB = 1 << 20


def rehearse_job(
    file: FileArgument,
    parameter: ParametersOption = None,
    runner: Annotated[
        str,
        typer.Option(metavar="|".join(_RUNNERS), help="Runner whose environment the tasks get."),
    ] = _RUNNERS[0],
    runner_option: RunnerOptionsOption = None,
    all_chunks: Annotated[
        bool, typer.Option("--all", help="Run all chunks of each step, not only the first.")
    ] = False,
    parallel: Annotated[
        int, typer.Option(metavar="N", help="Run up to N tasks at the same time.")
    ] = 1,
    network: Annotated[
        bool,
        typer.Option("--network", help="Give tasks the network of this machine, in place of none."),
    ] = False,
    memory_limit: Annotated[
        str,
        typer.Option(
            metavar="auto|cgroup|rlimit",
            help="Limit the memory of a task with a control group, or of each process separately; "
            "auto takes a control group where this user may create one.",
        ),
    ] = "auto",
) -> None:
    """Run the tasks of a job here as the runner would, without a network; submit nothing.

    Exit code: 0 if all tasks succeed, 1 if one fails, 2 if the job cannot be rehearsed. Ctrl-C,
    SIGTERM and closing the terminal end the tasks that run.
    """
    # Their import would delay all other commands.
    from hyperplane.jobs.runners.registry import create_runner, resolve_options
    from hyperplane.jobs.runners.rehearsal import describe_differences, rehearse, resolve_limits

    options, faults = parse_settings(runner_option or (), "--runner-option")
    if runner not in _RUNNERS:
        faults.append(Fault("--runner", repr(runner), f"one of {', '.join(_RUNNERS)}"))
    limits, refused = resolve_limits(memory_limit, network, parallel)
    faults += refused
    with stating_outcome("nothing was run"):
        job = with_sizes(build_job(file, parameter=parameter, runs_here=False, other_faults=faults))
        rehearsed = cast(
            "RehearsedRunner", create_runner(runner, {}, resolve_options(runner, options))
        )
    title = rehearsed.title
    with _ending_on_signals():
        succeeded = rehearse(job, rehearsed, all_chunks=all_chunks, report=_show, limits=limits)
    typer.echo(f"each task had a new working folder with only the files of its step, as on {title}")
    typer.echo(f"differences from {title}:")
    for line in describe_differences(job, rehearsed, limits):
        typer.echo(f"  - {line}")
    if not succeeded:
        raise typer.Exit(1)


@contextlib.contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP, so that the task ends and its files are removed."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    # nohup ignores SIGHUP.
    handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, end) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _show(outcome: TaskOutcome) -> None:
    """Print how a task ended, and the end of its log."""
    name = f"step {outcome.step!r}" + f", chunk {outcome.chunk}" * (outcome.chunk >= 0)
    end = "exceeded its timeout" if outcome.code is None else f"exit code {outcome.code}"
    typer.echo(f"{name}: {end} after {outcome.seconds:.1f} s{_describe_memory(outcome)}")
    for line in outcome.log.splitlines()[-_LINES:]:
        typer.echo(f"  {to_log_line(line)}".rstrip())


def _describe_memory(outcome: TaskOutcome) -> str:
    """Return how much memory a task has used, if that was measured."""
    limit = f"{outcome.memory / _MIB:.0f} MiB"
    if outcome.out_of_memory:
        return f", a process was killed at the limit of {limit}"
    return "" if outcome.peak is None else f", {outcome.peak / _MIB:.0f} of {limit}"
