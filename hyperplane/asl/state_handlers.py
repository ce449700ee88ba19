"""What each type of state does, but for those that hold other states."""

from __future__ import annotations

from typing import Any

from hyperplane.asl.choice_rules import holds
from hyperplane.asl.dataflow import chosen, finished, followed, whole
from hyperplane.asl.errors import StateError
from hyperplane.asl.execution import Frame, Run
from hyperplane.asl.json_values import plain
from hyperplane.asl.retry_catch import RUNTIME
from hyperplane.asl.templates import dynamic, fill
from hyperplane.asl.timestamps import parse_timestamp

#: The output of a state, and the name of the next one; None after the last.
Outcome = tuple[Any, str | None]


def _worked_on(state: dict[str, Any], data: Any, context: Any) -> Any:
    """The input of the work: ``InputPath``, then ``Parameters``."""
    selected = chosen(state, "InputPath", data, context)
    return fill(state["Parameters"], selected, context) if "Parameters" in state else selected


def onward(state: dict[str, Any]) -> str | None:
    """The state that follows; None after one that ends."""
    following: str | None = state.get("Next")
    return following


def pass_on(run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame) -> Outcome:
    """Pass: its ``Result``, or its input."""
    result = _worked_on(state, data, context)
    if "Result" in state:
        result = plain(state["Result"])  # the machine stays as it is, whoever changes the output
    return finished(state, data, result, context), onward(state)


def task(run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame) -> Outcome:
    """Task: what its resource makes of the input."""
    selected = chosen(state, "InputPath", data, context)
    payload = fill(state["Parameters"], selected, context) if "Parameters" in state else selected
    limit = whole(state, "TimeoutSeconds", selected, context, least=1)
    resource = state["Resource"]
    if run.tasks.invokes(resource):
        result = _invoked(run, payload, limit, frame)
    else:
        found = run.tasks.find(resource)
        if found is None:
            raise StateError(RUNTIME, f"there is no task {resource}")
        result = run.call(found, payload, limit, frame.scope)
    return finished(state, data, result, context), onward(state)


def _invoked(run: Run, parameters: Any, limit: float | None, frame: Frame) -> Any:
    """A function by way of ``lambda:invoke``, which wraps what the function returns."""
    name = parameters.get("FunctionName")
    found = run.tasks.function(name)
    if found is None:
        raise StateError(RUNTIME, f"there is no task for the function {name}")
    result = run.call(found, parameters.get("Payload", {}), limit, frame.scope)
    return {"ExecutedVersion": "$LATEST", "Payload": result, "StatusCode": 200}


def choice(run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame) -> Outcome:
    """Choice: the state that the first rule that holds names."""
    selected = chosen(state, "InputPath", data, context)
    following = next(
        (rule["Next"] for rule in state["Choices"] if holds(rule, selected, context)),
        state.get("Default"),
    )
    if following is None:
        raise StateError("States.NoChoiceMatched", "no rule holds, and there is no Default")
    return chosen(state, "OutputPath", selected, context), following


def wait(run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame) -> Outcome:
    """Wait: for some time, or until some time."""
    selected = chosen(state, "InputPath", data, context)
    if "Seconds" in state or "SecondsPath" in state:
        seconds: float = whole(state, "Seconds", selected, context) or 0
    else:
        text = state.get("Timestamp")
        if text is None:
            text = followed(state["TimestampPath"], selected, context, "TimestampPath")
        time = parse_timestamp(text)
        if time is None:
            raise StateError(RUNTIME, f"TimestampPath leads to {text!r}, no timestamp")
        seconds = max(0.0, (time - run.now()).total_seconds())
    run.pause(seconds, frame.scope)
    return chosen(state, "OutputPath", selected, context), onward(state)


def succeed(run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame) -> Outcome:
    """Succeed: the end."""
    selected = chosen(state, "InputPath", data, context)
    return chosen(state, "OutputPath", selected, context), None


def fail(run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame) -> Outcome:
    """Fail: an error, as the state names it."""
    raise StateError(_said(state, "Error", data, context), _said(state, "Cause", data, context))


def _said(state: dict[str, Any], name: str, data: Any, context: Any) -> str:
    if f"{name}Path" not in state:
        return str(state.get(name, ""))
    text = state[f"{name}Path"]
    if text.startswith("$"):
        value = followed(text, data, context, f"{name}Path")
    else:
        value = dynamic(text, data, context)
    if not isinstance(value, str):
        raise StateError(RUNTIME, f"{name}Path leads to {value!r}, no text")
    return value
