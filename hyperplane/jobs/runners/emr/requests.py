"""Requests to Amazon EMR for attempts: a cluster with one step, or a step of a cluster."""

from __future__ import annotations

import errno
import math
import shlex
from collections.abc import Sequence
from typing import Any

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import owning_job_id
from hyperplane.jobs.runners.driver_files import (
    DriverFiles,
    PlannedRun,
    job_tags,
    log_prefix,
    plan_driver,
    step_size,
)
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.step_resources import grace_seconds
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.platforms.aws.emr_instances import EmrInstance, find_instance
from hyperplane.spec.settings import EmrSettings

#: Name of the service in messages.
SYSTEM = "Amazon EMR"
#: Bootstrap action that runs the command of its arguments as root.
BOOTSTRAP = TaskFile("emr_bootstrap.sh", b'#!/bin/sh\nexec sudo "$@"\n')
#: Package that the program of the driver needs.
_BOTO3 = "boto3"
#: Seconds that the program of a driver waits longer than the supervisor, which ends attempts at
#: their time limit.
_TIMEOUT_MARGIN = 120
#: Seconds without work after which EMR ends a cluster that was started for a step without a
#: timeout: the most that it accepts. With a timeout, it is that of the step and the time until a
#: cluster runs, because some releases take a program that does not use Spark for no work.
_MOST_IDLE_SECONDS, _START_SECONDS = 604_800, 3600

Object = dict[str, Any]


def step_instance(step: Step, memory_factor: float, settings: EmrSettings) -> EmrInstance | None:
    """Return the machine that runs the program of a step; None if none is large enough."""
    return find_instance(step_size(step, memory_factor, settings), settings.instance_type)


def attempt_seconds(timeout: float) -> int:
    """Return the seconds after which an attempt is ended, also without a supervisor."""
    return math.ceil(timeout + grace_seconds()) + _TIMEOUT_MARGIN


def plan_run(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: EmrSettings,
    program: TaskFile,
    files: Sequence[TaskFile],
) -> PlannedRun:
    """Return the requests for an attempt.

    ``program`` is the program that the driver runs, and ``files`` are those that it writes. Raises
    OSError if no machine is large enough.
    """
    driver = plan_driver(command, step, settings, program, files)
    seconds = 0 if step.timeout is None else attempt_seconds(step.timeout)
    emr_step = {
        "Name": driver.name,
        "ActionOnFailure": "CONTINUE" if settings.cluster else "TERMINATE_CLUSTER",
        "HadoopJarStep": {
            "Jar": "command-runner.jar",
            "Args": ["spark-submit", *submit_words(driver, settings, seconds)],
        },
    }
    request: Object
    if settings.cluster:
        request = {"JobFlowId": settings.cluster, "Steps": [emr_step]}
    else:
        instance = step_instance(step, memory_factor, settings)
        if instance is None:
            raise OSError(errno.EPERM, "no machine of Amazon EMR is large enough", SYSTEM)
        tags = job_tags(parse_pairs(settings.tags), owning_job_id(command))
        request = _cluster(driver, emr_step, instance, settings, tags, seconds)
    return PlannedRun(driver.name, request, driver.manifest_key, driver.manifest)


def submit_words(driver: DriverFiles, settings: EmrSettings, seconds: int) -> list[str]:
    """Return the arguments of spark-submit for an attempt."""
    words = ["--deploy-mode", "client", "--name", driver.name]
    for pair in (f"spark.pyspark.python={settings.python}", *settings.spark_conf):
        words += ["--conf", pair]
    if settings.python_files:
        words += ["--py-files", ",".join(settings.python_files)]
    log = log_prefix(driver.folder, driver.name)
    return [*words, driver.script, *driver.words(log, seconds)]


def _cluster(
    driver: DriverFiles,
    emr_step: Object,
    instance: EmrInstance,
    settings: EmrSettings,
    tags: list[dict[str, str]],
    seconds: int,
) -> Object:
    """Return the request that starts a cluster, which ends after its only step."""
    counts = {"MASTER": 1, "CORE": settings.workers - 1}
    groups = [
        {
            "Name": role.lower(),
            "InstanceRole": role,
            "Market": "ON_DEMAND",
            "InstanceType": instance.name,
            "InstanceCount": count,
        }
        for role, count in counts.items()
        if count
    ]
    idle = seconds + _START_SECONDS if seconds else _MOST_IDLE_SECONDS
    instances: Object = {
        "InstanceGroups": groups,
        "KeepJobFlowAliveWhenNoSteps": False,
        "TerminationProtected": False,
    }
    if settings.subnet:
        instances["Ec2SubnetId"] = settings.subnet
    return {
        "Name": driver.name,
        "LogUri": f"{driver.folder.url(driver.folder.key('logs'))}/",
        "ReleaseLabel": settings.release,
        "Applications": [{"Name": "Spark"}],
        "ServiceRole": settings.service_role,
        "JobFlowRole": settings.instance_profile,
        "VisibleToAllUsers": True,
        "Instances": instances,
        "AutoTerminationPolicy": {"IdleTimeout": min(idle, _MOST_IDLE_SECONDS)},
        "BootstrapActions": _bootstrap_actions(driver, settings),
        "Steps": [emr_step],
        "Tags": tags,
    }


def _bootstrap_actions(driver: DriverFiles, settings: EmrSettings) -> list[Object]:
    """Return what machines do at their start: install packages, and what the settings name."""
    own = driver.folder.url(driver.folder.content_key(BOOTSTRAP.content, BOOTSTRAP.suffix))
    actions = []
    if settings.system_packages:
        words = ["dnf", "install", "-y", *settings.system_packages]
        actions.append(("system packages", own, words))
    for index, text in enumerate(settings.bootstrap_actions):
        url, *words = shlex.split(text)
        actions.append((f"bootstrap action {index}", url, words))
    words = [settings.python, "-m", "pip", "install", _BOTO3, *settings.python_modules]
    actions.append(("packages of Python", own, words))
    return [
        {"Name": name, "ScriptBootstrapAction": {"Path": url, "Args": arguments}}
        for name, url, arguments in actions
    ]
