"""Functions made jobs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

from hyperplane.jobs import calls, submitting
from hyperplane.jobs.definition.models import Pipeline, Step
from hyperplane.jobs.handle import JobHandle

F = TypeVar("F", bound=Callable[..., Any])


@overload
def job(function: F) -> F: ...
@overload
def job(**options: Any) -> Callable[[F], F]: ...
def job(function: Any = None, **options: Any) -> Any:
    """Make a function one that can be submitted as a job.

    Parameters
    ----------
    function : callable
        The function; called as before, it runs here and now.
    **options
        ``name``, ``timeout``, ``active_timeout`` and ``max_retries`` as for
        :func:`hyperplane.jobs.submit`; others, such as ``resources``, ``env`` and ``secrets``, as
        for :class:`hyperplane.jobs.Step`.

    Returns
    -------
    callable
        The function, with ``submit(...)``, which takes its arguments and returns a
        :class:`~hyperplane.jobs.JobHandle`.

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
        return lambda later: job(later, **options)
    of_job = {"name", "timeout", "active_timeout", "max_retries", "parameters"}

    def submit(*arguments: Any, **named: Any) -> JobHandle:
        place = {name: value for name, value in options.items() if name not in of_job}
        argv = (sys.executable, "-m", calls.PROGRAM)
        title = getattr(function, "__name__", "function")
        step = Step(name=title, kind="command", argv=argv, **place)
        made = submitting.new_job(
            Pipeline.from_steps(title, [step], root=Path.cwd()),
            **{name: value for name, value in options.items() if name in of_job},
        )
        calls.keep(made, (function, arguments, named))
        return JobHandle(submitting.send(made).id)

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    called.submit = submit  # type: ignore[attr-defined]
    return called
