"""Forecast steps that say ``pool: auto`` and have no recorded run, before their first attempt.

The forecast runs the program that the step names, in a process like that of the step: its Python,
environment, secrets and working folder, on the machine that runs the job's scheduler. If it fails,
the step has the default pool.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyperplane.core.errors import RequestError
from hyperplane.core.units import parse_seconds
from hyperplane.jobs import step_wrapper
from hyperplane.jobs.definition.field_types import split_target
from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.definition.step_rules import AUTO
from hyperplane.jobs.execution import redaction, requirements
from hyperplane.jobs.execution.attempt_process import AttemptCommand, LocalProcess
from hyperplane.jobs.execution.attempt_results import make_result_variables
from hyperplane.jobs.execution.failure_kinds import describe_failure
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.execution.step_command import attempt_prefix, working_folder
from hyperplane.jobs.execution.step_environment import (
    find_secrets,
    secret_variables,
    step_variables,
    without_other_secrets,
)
from hyperplane.jobs.execution.step_forecast import StepForecast
from hyperplane.jobs.execution.step_log import read_last_lines, read_tail
from hyperplane.jobs.execution.step_sizes import StepSizes
from hyperplane.jobs.runners.base import BudgetRunner, Runner
from hyperplane.jobs.store.job_records import Job, WorkUnit
from hyperplane.jobs.submission.submission_snapshot import SubmissionSnapshot
from hyperplane.platforms.local import machine

#: Most seconds of a forecast; a step with a shorter timeout has that.
FORECAST_SECONDS = 600.0
#: Most lines, and bytes of these, of the output of a forecast in the log of the step.
_MOST_LINES, _MOST_BYTES = 20, 8192
#: Name of the files of a forecast, without suffix.
FORECAST_FILES = "forecast"
_PROGRAM = Path(__file__).with_name("forecast_program.py")


class StepForecaster:
    """Forecasts the steps of one job, each once.

    Parameters
    ----------
    job : Job
        The job, with paths of this machine.
    runner : Runner
        The runner of its steps.
    capacity : ResourceAllocator
        Resources of this machine.
    environment : mapping of str to str
        Environment of the submission.
    snapshot : SubmissionSnapshot
        Settings and pools that the job was submitted with.
    sizes : StepSizes
        Sizes of the steps, which the forecasts choose.
    """

    def __init__(
        self,
        job: Job,
        runner: Runner,
        capacity: ResourceAllocator,
        environment: Mapping[str, str],
        snapshot: SubmissionSnapshot,
        sizes: StepSizes,
    ) -> None:
        self._job, self._runner, self._capacity, self._sizes = job, runner, capacity, sizes
        self._environment, self._snapshot = environment, snapshot
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: The unit whose attempt has waited for the forecast of a step, and the output of it.
        self._outputs: dict[WorkUnit, list[str]] = {}

    async def end_earlier(self) -> None:
        """End the forecasts of a supervisor that was killed, also those of a job that ends now."""
        for step in self._job.pipeline.steps:
            if step.forecast is not None:
                await LocalProcess(AttemptCommand((), {}, "", _find_prefix(self._job, step))).end(0)

    async def forecast(self, step: Step, unit: WorkUnit) -> None:
        """Choose the sizes of a step by a forecast of one of its units, if they need one."""
        async with self._locks[step.name]:  # chunks that start together wait for the first
            if not self._sizes.lacks_forecast(step.name):
                return
            requested = self._sizes.requested(step.name)
            found = await self._run(requested, unit)
            self._sizes.set_forecast(step.name, found)
            if excess := self._find_excess():
                found = replace(found, failure=f"its pool is not used: {excess}", node={})
                found = replace(found, ram_per_proc=0)
                self._sizes.set_forecast(step.name, found)
            write_forecast(self._job, step, found)

    def take_output(self, unit: WorkUnit) -> list[str]:
        """Return the lines that the forecast of a unit has printed, once."""
        return self._outputs.pop(unit, [])

    async def _run(self, step: Step, unit: WorkUnit) -> StepForecast:
        """Run the forecast of a step in a process, and return its result."""
        target = str(step.forecast)
        values, missing = find_secrets(
            step.secrets, self._environment, self._snapshot.settings.secrets
        )
        if missing:
            return StepForecast(target, failure=f"secret {', '.join(missing)} not found")
        prefix = _find_prefix(self._job, step)
        seconds = min(FORECAST_SECONDS, step.timeout or FORECAST_SECONDS)
        one_core = step.model_copy(update={"resources": Resources(cores=1.0)})
        async with self._capacity.reserve(self._capacity.demand(one_core)):
            try:
                command = self._make_command(step, unit, prefix, values)
                for suffix in (".log", ".result"):
                    command.file(suffix).unlink(missing_ok=True)
                process = LocalProcess.start(command)
            except OSError as error:
                text = f"its process cannot be started: {error.strerror} ({error.filename})"
                return StepForecast(target, failure=text)
            code = await self._wait(process, seconds)
        with suppress(OSError):
            self._outputs[unit] = read_last_lines(
                command.file(".log"), _MOST_LINES, _MOST_BYTES
            ).splitlines()
        try:
            found = StepForecast.from_json(command.file(".result").read_text())
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            text = f"it exceeded its limit of {seconds:g} s"
            if code == 0:
                text = "its process ended before there was a result"
            elif code is not None:
                text = describe_failure(code, read_tail(command.file(".log")))
            found = StepForecast(target, failure=text)
        failure = redaction.redact_text(found.failure, [*values.values()])
        return replace(found, target=target, failure=failure)

    async def _wait(self, process: LocalProcess, seconds: float) -> int | None:
        """Wait for the end of a forecast and return its exit code; None if it took too long."""
        grace = float(parse_seconds(self._snapshot.settings.grace))
        try:
            return await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            await asyncio.shield(process.end(grace))
            return None
        except asyncio.CancelledError:  # also if the supervisor ends: the next one starts again
            await asyncio.shield(process.end(grace))
            raise

    def _make_command(
        self, step: Step, unit: WorkUnit, prefix: Path, values: dict[str, str]
    ) -> AttemptCommand:
        job = self._job
        prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path, name = split_target(str(step.forecast))
        request = prefix.with_suffix(".request")
        request.write_text(
            json.dumps(
                {
                    "target": f"{Path(job.pipeline.root, path)}:{name}",
                    "cluster": step.cluster,
                    "threads": self._list_threads(step),
                }
            )
        )
        environment = {
            **without_other_secrets(step, job.pipeline.steps, self._environment),
            **step_variables(job, step, unit, 1),
            **secret_variables(values),
            **make_result_variables(prefix),
            step_wrapper.LOG_LIMIT_VARIABLE: str(self._snapshot.settings.log_bytes),
        }
        python = requirements.select_interpreter(job.pipeline, job.python)
        # -P: the folder of the program is not searched for modules.
        argv = (python, "-P", str(_PROGRAM), str(request), str(prefix.with_suffix(".result")))
        folder = working_folder(job.pipeline, step)
        return AttemptCommand(argv, environment, folder, prefix)

    def _list_threads(self, step: Step) -> list[int]:
        """Return how many threads a step may have on a node; none if that is not asked."""
        if step.resources.pool != AUTO:
            return []
        if getattr(self._runner, "uses_this_machine", False):
            return [machine.cores()]
        return sorted({max(1, int(pool.cores or 1)) for pool in self._sizes.pools.values()})

    def _find_excess(self) -> str:
        """Return how the job may now exceed the budget of its runner; empty if it may not."""
        if not isinstance(self._runner, BudgetRunner):
            return ""
        steps = tuple(map(self._sizes.resize, self._job.pipeline.steps))
        pipeline = self._job.pipeline.model_copy(update={"steps": steps})
        try:
            sized = replace(self._job, definition=pipeline.to_json())
            faults = list(self._runner.find_budget_faults(sized))
        except RequestError as error:  # a price that the job needs may be missing now
            faults = [*error.faults]
        return "; ".join(map(str, faults))


def _find_prefix(job: Job, step: Step) -> Path:
    """Return the path of the files of a step's forecast without their suffix."""
    return attempt_prefix(job, WorkUnit(step.name), 0).with_name(FORECAST_FILES)


def write_forecast(job: Job, step: Step, forecast: StepForecast) -> None:
    """Keep a forecast for a supervisor that continues the job; a failure to do so costs another."""
    document: dict[str, Any] = {"requested": job.requested, "forecast": forecast.to_json()}
    with suppress(OSError):
        _find_prefix(job, step).with_suffix(".json").write_text(json.dumps(document))


def read_forecast(job: Job, step: Step) -> StepForecast | None:
    """Return the forecast that was made of a step since the submission or the last resume."""
    try:
        document = json.loads(_find_prefix(job, step).with_suffix(".json").read_text())
        if document["requested"] != job.requested:
            return None  # its input may have changed
        return StepForecast.from_json(document["forecast"])
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None
