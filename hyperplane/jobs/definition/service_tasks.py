"""Tasks of AWS Step Functions that replace the program of a step in an exported machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.message_formatting import format_value

_ARN = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[^\s]+")
_SERVICE = re.compile(r"arn:[^:]+:states:::([a-z0-9-]+:[A-Za-z]+)(\..*)?")
#: Action of a service -> the parameters that it requires.
_REQUIRED = {
    "batch:submitJob": ("JobName", "JobQueue", "JobDefinition"),
    "elasticmapreduce:addStep": ("ClusterId", "Step"),
    "emr-serverless:startJobRun": ("ApplicationId", "ExecutionRoleArn", "JobDriver"),
    "glue:startJobRun": ("JobName",),
    "lambda:invoke": ("FunctionName",),
}
_KEYS = ("resource", "parameters")


def find_service_task_faults(task: Mapping[str, Any], where: str) -> Iterator[Fault]:
    """Yield the faults of the field ``step_functions`` of a step.

    Examples
    --------
    >>> glue = {"resource": "arn:aws:states:::glue:startJobRun.sync"}
    >>> [fault.where for fault in find_service_task_faults(glue, "step_functions")]
    ['step_functions.parameters.JobName']
    """
    for key in task:
        if key not in _KEYS:
            yield Fault(f"{where}.{key}", format_value(task[key]), f"one of {', '.join(_KEYS)}")
    resource, parameters = task.get("resource"), task.get("parameters", {})
    if not isinstance(resource, str) or not _ARN.fullmatch(resource):
        allowed = "an ARN, such as arn:aws:states:::glue:startJobRun.sync"
        asked = "nothing" if resource is None else format_value(resource)
        yield Fault(f"{where}.resource", asked, allowed)
        return
    if resource.endswith(".waitForTaskToken"):
        allowed = "a task without a token: no program of the step would send it back"
        yield Fault(f"{where}.resource", format_value(resource), allowed)
    if not isinstance(parameters, Mapping):
        allowed = "a mapping of the parameters of the resource"
        yield Fault(f"{where}.parameters", format_value(parameters), allowed)
        return
    match = _SERVICE.fullmatch(resource)
    for name in _REQUIRED.get(match[1], ()) if match else ():
        if name not in parameters and f"{name}.$" not in parameters:
            allowed = f"a value; {match[1] if match else resource} requires it"
            yield Fault(f"{where}.parameters.{name}", "nothing", allowed)
