"""Requests to EMR Serverless for attempts, each of which is one run."""

from __future__ import annotations

import errno
import hashlib
import math
import shlex
from collections.abc import Sequence
from typing import Any

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import owning_job_id
from hyperplane.jobs.runners.driver_files import (
    JOB_TAG,
    PlannedRun,
    log_prefix,
    plan_driver,
    step_size,
)
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.step_resources import grace_seconds
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.platforms.aws.emr_serverless_sizes import find_worker
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import EmrServerlessSettings

#: Name of the service in messages.
SYSTEM = "EMR Serverless"
#: Least and most minutes of a run. Without a time limit, the service would end it after 12 hours.
_LEAST_MINUTES, MAX_MINUTES = 5, 10_080
#: Minutes that the service waits longer than the supervisor, which ends attempts at their time
#: limit.
_TIMEOUT_MARGIN = 2
#: Fraction of an executor outside of its JVM, and the least MiB: the defaults of Spark.
_OVERHEAD, _LEAST_OVERHEAD = 0.1, 384
#: MiB of the heap of the JVM of a driver. Its threads, and the program of the step, have the rest.
_DRIVER_HEAP = 1 << 10

Object = dict[str, Any]


def step_worker(
    step: Step, memory_factor: float, settings: EmrServerlessSettings
) -> TaskSize | None:
    """Return the size of the driver of a step, and of executors; None if none is large enough."""
    return find_worker(step_size(step, memory_factor, settings))


def attempt_minutes(timeout: float | None) -> int:
    """Return the minutes after which the service ends an attempt, also without a supervisor."""
    if timeout is None:
        return MAX_MINUTES
    minutes = math.ceil((timeout + grace_seconds()) / 60) + _TIMEOUT_MARGIN
    return min(MAX_MINUTES, max(_LEAST_MINUTES, minutes))


def plan_serverless_run(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: EmrServerlessSettings,
    program: TaskFile,
    files: Sequence[TaskFile],
) -> PlannedRun:
    """Return the requests for an attempt.

    ``program`` is the program that the driver runs, and ``files`` are those that it writes. Raises
    OSError if no worker is large enough.
    """
    worker = step_worker(step, memory_factor, settings)
    if worker is None:
        raise OSError(errno.EPERM, "no worker of EMR Serverless is large enough", SYSTEM)
    driver = plan_driver(command, step, settings, program, files)
    words = _submit_words(worker, settings)
    logs = {"logUri": f"{driver.folder.url(driver.folder.key('logs'))}/"}
    request = {
        "applicationId": settings.application,
        # A name may be longer than a token. It is the same in each request for the attempt.
        "clientToken": hashlib.sha256(driver.name.encode()).hexdigest(),
        "executionRoleArn": settings.role,
        "name": driver.name,
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": driver.script,
                # The service ends the driver with its container.
                "entryPointArguments": driver.words(log_prefix(driver.folder, driver.name), 0),
                "sparkSubmitParameters": shlex.join(words),
            }
        },
        "configurationOverrides": {"monitoringConfiguration": {"s3MonitoringConfiguration": logs}},
        "executionTimeoutMinutes": attempt_minutes(step.timeout),
        "tags": {**parse_pairs(settings.tags), JOB_TAG: owning_job_id(command)},
    }
    return PlannedRun(driver.name, request, driver.manifest_key, driver.manifest)


def _submit_words(worker: TaskSize, settings: EmrServerlessSettings) -> list[str]:
    """Return the options of spark-submit.

    The program of a step is no part of the JVM of its driver, so its memory is overhead.
    """
    overhead = max(_LEAST_OVERHEAD, math.ceil(worker.memory * _OVERHEAD))
    options = {
        "spark.driver.cores": f"{worker.cores:g}",
        "spark.driver.memory": f"{_DRIVER_HEAP}m",
        "spark.driver.memoryOverhead": f"{worker.memory - _DRIVER_HEAP}m",
        "spark.executor.cores": f"{worker.cores:g}",
        "spark.executor.memory": f"{worker.memory - overhead}m",
        "spark.executor.memoryOverhead": f"{overhead}m",
        "spark.dynamicAllocation.enabled": "false",
        "spark.executor.instances": f"{settings.workers - 1}",
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": settings.python,
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": settings.python,
        "spark.executorEnv.PYSPARK_PYTHON": settings.python,
    }
    pairs = [f"{name}={value}" for name, value in options.items()]
    words = [word for pair in (*pairs, *settings.spark_conf) for word in ("--conf", pair)]
    if settings.python_files:
        words += ["--py-files", ",".join(settings.python_files)]
    return words
