"""Requests to AWS Step Functions: create state machines; start, read and stop executions.

Each request can be repeated: machines and executions have names, under which the service creates
only one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from hyperplane.platforms.aws.errors import (
    AwsConnectionError,
    AwsError,
    AwsRequestError,
    is_retryable,
    is_unconfirmed,
)
from hyperplane.platforms.aws.session import AwsSession, read_value

#: Name of a state machine or an execution.
NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
#: Maximum bytes of the input of an execution.
MAX_INPUT_BYTES = 262_144
#: Statuses of an execution that has not ended.
RUNNING = ("RUNNING", "PENDING_REDRIVE")
#: Service that the role of a machine must trust.
PRINCIPAL = "states.amazonaws.com"
_MACHINE_TAKEN, _EXECUTION_TAKEN = "StateMachineAlreadyExists", "ExecutionAlreadyExists"
_NO_EXECUTION = "ExecutionDoesNotExist"
#: Seconds between the attempts at a request.
_DELAYS = (1.0, 2.0, 4.0, 8.0)

Object = dict[str, Any]


class ExecutionExistsError(AwsRequestError):
    """An execution of that name exists, with another input or after its end.

    Attributes
    ----------
    arn : str
        ARN of the execution.
    """

    def __init__(self, arn: str) -> None:
        super().__init__(f"the execution {arn} exists", _EXECUTION_TAKEN, 400)
        self.arn = arn


class StepFunctionsApi:
    """Requests to Step Functions, repeated while there is no answer; raises AwsError.

    Parameters
    ----------
    session : AwsSession
        Session of the requests.
    sleep : callable, optional
        Waits between the attempts at a request.
    """

    def __init__(self, session: AwsSession, sleep: Callable[[float], object] = time.sleep) -> None:
        self._session, self._sleep = session, sleep

    def create_machine(self, name: str, definition: str, role: str) -> str | None:
        """Create a machine and return its ARN; None if its name is that of a different one."""
        try:
            answer = self._repeat(
                "create_state_machine",
                name=name,
                definition=definition,
                roleArn=role,
                type="STANDARD",
            )
        except AwsRequestError as error:
            if error.code != _MACHINE_TAKEN:
                raise
            return None
        arn = str(_read(answer, "stateMachineArn", "create_state_machine"))
        found = self._repeat("describe_state_machine", stateMachineArn=arn)
        is_same = json.loads(found["definition"]) == json.loads(definition)
        return arn if is_same and found["roleArn"] == role else None

    def update_machine(self, arn: str, definition: str, role: str) -> None:
        """Replace the definition and the role of a machine; executions keep those they have."""
        self._repeat(
            "update_state_machine", stateMachineArn=arn, definition=definition, roleArn=role
        )

    def find_machine(self, name: str) -> str | None:
        """Return the ARN of the machine of a name; None if there is none."""
        token: dict[str, str] = {}
        while True:
            answer = self._repeat("list_state_machines", **token)
            for machine in _read(answer, "stateMachines", "list_state_machines"):
                if machine["name"] == name:
                    return str(machine["stateMachineArn"])
            if not answer.get("nextToken"):
                return None
            token = {"nextToken": answer["nextToken"]}

    def start(self, machine: str, name: str, machine_input: str) -> str:
        """Start one execution of a name and return its ARN.

        Raises
        ------
        ExecutionExistsError
            If the name was used before. An execution that an earlier attempt of this call has
            started is none of these, also if it has ended.
        AwsError
            If it was not started; the error names the execution if it may run.
        """
        arn = execution_arn(machine, name)
        may_run = False
        for delay in (*_DELAYS, None):
            try:
                answer = self._call(
                    "start_execution", stateMachineArn=machine, name=name, input=machine_input
                )
                return str(_read(answer, "executionArn", "start_execution"))
            except AwsError as error:
                if isinstance(error, AwsRequestError) and error.code == _EXECUTION_TAKEN:
                    if may_run and self._has_input(arn, machine_input):
                        return arn
                    raise ExecutionExistsError(arn) from error
                may_run = may_run or is_unconfirmed(error)
                if not is_retryable(error) or delay is None:
                    if not may_run:
                        raise
                    raise AwsConnectionError(f"{error}; the execution {arn} may run") from error
                self._sleep(delay)
        raise AssertionError  # the last attempt returns or raises

    def read_execution(self, arn: str) -> Object | None:
        """Return the description of an execution; None if there is none."""
        try:
            return self._repeat("describe_execution", executionArn=arn)
        except AwsRequestError as error:
            if error.code != _NO_EXECUTION:
                raise
            return None

    def stop(self, arn: str, cause: str) -> None:
        """Request the end of an execution; one that has ended stays unchanged."""
        self._repeat("stop_execution", executionArn=arn, error="Stopped", cause=cause)

    def _has_input(self, arn: str, machine_input: str) -> bool:
        found = self.read_execution(arn)
        return found is not None and found.get("input") == machine_input

    def _repeat(self, operation: str, **request: Any) -> Object:
        """Send a request whose repetition changes nothing, until there is an answer."""
        for delay in _DELAYS:
            try:
                return self._call(operation, **request)
            except AwsError as error:
                if not is_retryable(error):
                    raise
                self._sleep(delay)
        return self._call(operation, **request)

    def _call(self, operation: str, **request: Any) -> Object:
        return self._session.call("stepfunctions", operation, **request)


def execution_arn(machine: str, name: str) -> str:
    """Return the ARN of an execution of a machine.

    Examples
    --------
    >>> execution_arn("arn:aws:states:eu-west-1:123456789012:stateMachine:flights", "monday")
    'arn:aws:states:eu-west-1:123456789012:execution:flights:monday'
    """
    parts = machine.split(":")
    return ":".join([*parts[:5], "execution", parts[6], name])


def region_of(arn: str) -> str | None:
    """Return the region in the ARN of a machine or execution; None if it has another form.

    Examples
    --------
    >>> region_of("arn:aws:states:eu-west-1:123456789012:execution:flights:monday")
    'eu-west-1'
    """
    parts = arn.split(":")
    is_arn = len(parts) >= 7 and parts[0] == "arn" and parts[2] == "states"
    return parts[3] if is_arn else None


def _read(answer: Object, key: str, operation: str) -> Any:
    return read_value(answer, key, f"stepfunctions {operation}")
