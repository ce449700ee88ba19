"""The ``@hyperplane.job`` decorator, which makes functions submittable as jobs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

from hyperplane.core.errors import Fault, RequestError, UnknownArgument, check
from hyperplane.core.public_calls import check_call, stating_outcome, unknown_name
from hyperplane.jobs import calls, job_control
from hyperplane.jobs.definition.message_formatting import suggest_names
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.definition.validated_record import validate_record
from hyperplane.jobs.handle import JobHandle
from hyperplane.jobs.submission.option_checks import label_faults, option_faults

F = TypeVar("F", bound=Callable[..., Any])

_JOB_OPTIONS = ("name", "job_type", "timeout", "active_timeout", "max_retries", "parameters")
#: Fields of a step that are not options of ``@job``.
_FILLED_FIELDS = {"name", "kind", "path", "argv", "output_path", "depends_on"}
#: ``timeout`` is that of the job.
_STEP_OPTIONS = tuple(
    name for name in Step.model_fields if name not in {*_FILLED_FIELDS, *_JOB_OPTIONS}
)
#: Name of the step for a callable that has no ``__name__``.
_DEFAULT_NAME = "function"


@overload
def job(function: F) -> F: ...
@overload
def job(**options: Any) -> Callable[[F], F]: ...
@check_call
def job(function: Any = None, **options: Any) -> Any:
    """Make a function submittable as a job.

    Parameters
    ----------
    function : callable
        The function; calling it still runs it in this process.
    **options
        Options of the job, as for :func:`hyperplane.jobs.submit`: ``name``, ``job_type``,
        ``timeout``, ``active_timeout``, ``max_retries`` and ``parameters``. Options of its step, as
        for :class:`hyperplane.jobs.Step`, such as ``resources``, ``env`` and ``secrets``.

    Returns
    -------
    callable
        The function, with an attribute ``submit``: a function that takes the same arguments,
        submits the call and returns a :class:`~hyperplane.jobs.JobHandle`. Arguments that do not
        match the signature, and variables and arguments that cannot be pickled, raise a
        RequestError, and nothing is submitted.

    Raises
    ------
    RequestError
        With every unknown or invalid option, and if the function cannot be a job because it is a
        coroutine function or a generator function.

    Examples
    --------
    >>> import hyperplane
    >>> @hyperplane.job
    ... def add(a, b):
    ...     return a + b
    >>> add(1, 2)
    3
    >>> add.submit(1, b=2).result()
    3
    """
    if function is None:
        check(_option_faults(options))
        return lambda decorated: job(decorated, **options)
    check([*_function_faults(function), *_option_faults(options)])
    title = getattr(function, "__name__", _DEFAULT_NAME)

    def submit(*arguments: Any, **named: Any) -> JobHandle:
        _check_arguments(function, title, arguments, named)
        step_options = {name: value for name, value in options.items() if name not in _JOB_OPTIONS}
        argv = (sys.executable, "-m", calls.PROGRAM)
        step = Step(name=title, kind="command", argv=argv, **step_options)
        new = job_control.new_job(
            Pipeline.from_steps(title, [step], root=Path.cwd()),
            **{name: value for name, value in options.items() if name in _JOB_OPTIONS},
        )
        calls.save_call(new, (function, arguments, named))
        return JobHandle(job_control.submit_job(new, source=_read_source(function)).id)

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    wrapper.submit = submit  # type: ignore[attr-defined]
    return wrapper


def _read_source(function: Any) -> str | None:
    """Return the source of a function's module, or of the function; None if there is none."""
    sources: tuple[Any, Any] = (inspect.getmodule(function), function)
    for source in sources:
        with contextlib.suppress(OSError, TypeError):
            return textwrap.dedent(inspect.getsource(source))
    return None


def _option_faults(options: Mapping[str, Any]) -> list[Fault]:
    known = [*_JOB_OPTIONS, *_STEP_OPTIONS]
    faults: list[Fault] = []
    for name in options:
        if name not in known:
            faults.append(unknown_name(name, options[name], ["function", *known], "job"))
    job_options = {
        name: options.get(name) for name in _JOB_OPTIONS if name not in ("job_type", "parameters")
    }
    faults += option_faults(**job_options)
    faults += label_faults(options["job_type"]) if "job_type" in options else []
    step_options = {name: value for name, value in options.items() if name in _STEP_OPTIONS}
    return (
        faults
        + validate_record(
            Step, {"name": _DEFAULT_NAME, "kind": "command", "argv": ("a",), **step_options}
        )[1]
    )


def _function_faults(function: Any) -> list[Fault]:
    """Return the faults of a function that cannot be a job."""
    if isinstance(function, (staticmethod, classmethod)) or not callable(function):
        allowed = "a function, or options by name as in @hyperplane.job(max_retries=1)"
        return [Fault("function", type(function).__name__, allowed)]
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        advice = "submit a function that returns the result of asyncio.run(...)"
        return [Fault("function", "a coroutine", "a function that returns a value", advice)]
    if inspect.isgeneratorfunction(function):
        allowed, advice = "a function that returns a value", "return a list"
        return [Fault("function", "a generator", allowed, advice)]
    return []


def _check_arguments(
    function: Any, title: str, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Refuse arguments that do not match the function's signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have no signature
        return
    try:
        signature.bind(*arguments, **named)
    except TypeError as error:
        parameters = signature.parameters
        is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        unknown = [] if is_open else [name for name in named if name not in parameters]
        suggestions = [suggest_names(name, parameters) for name in unknown]
        allowed = f"arguments of {title}{signature}"
        fault = Fault("submit", str(error), allowed, " ".join(filter(None, suggestions)))
        with stating_outcome("nothing was submitted"):
            raise (UnknownArgument if unknown else RequestError)([fault]) from error
