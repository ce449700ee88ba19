"""Errors of Kubernetes as errors of the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from hyperplane.core.errors import EngineError, StartFailed
from hyperplane.platforms.kubernetes.errors import (
    KubeconfigError,
    KubernetesError,
    PortForwardError,
    RequestRefused,
)

#: Name of the engine in errors.
ENGINE = "kubernetes"

P = ParamSpec("P")
T = TypeVar("T")


def raise_engine_errors(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine function so that it raises KubernetesErrors as EngineErrors.

    A refused request, a missing configuration or a port that cannot be forwarded is a
    ``StartFailed``. Any other error is a plain ``EngineError``, because an API server that does not
    answer now may answer later.
    """

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except (RequestRefused, KubeconfigError, PortForwardError) as error:
            raise StartFailed(ENGINE, str(error)) from error
        except KubernetesError as error:
            raise EngineError(ENGINE, str(error)) from error

    return wrapper
