"""Errors of Kubernetes become errors of the engine, with the same message."""

from __future__ import annotations

import asyncio

import pytest

from hyperplane.clusters.custom_resource import engine_errors
from hyperplane.core.errors.platforms import PlatformError
from hyperplane.errors import EngineError, HyperplaneError, StartFailed
from hyperplane.platforms.kubernetes.errors import (
    KubeconfigError,
    KubernetesError,
    ObjectNotFound,
    PortForwardError,
    RequestRefused,
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KubernetesError("no answer"), EngineError),
        (ObjectNotFound("no answer"), EngineError),
        (RequestRefused("no answer", 403), StartFailed),
        (KubeconfigError("no answer"), StartFailed),
        (PortForwardError("no answer"), StartFailed),
    ],
)
def test_an_error_of_the_platform_is_raised_as_one_of_the_engine(
    error: KubernetesError, kind: type[EngineError]
) -> None:
    async def request(number: int) -> None:
        with engine_errors("kubernetes"):
            assert number == 1
            raise error

    assert isinstance(error, PlatformError)
    assert isinstance(error, HyperplaneError)
    with pytest.raises(EngineError) as caught:
        asyncio.run(request(1))
    assert type(caught.value) is kind
    assert str(caught.value) == "engine kubernetes: no answer"
    assert caught.value.engine == "kubernetes"
    assert caught.value.__cause__ is error


def test_results_and_other_errors_pass() -> None:
    async def request(number: int) -> int:
        with engine_errors("kubernetes"):
            if number < 0:
                raise StartFailed("kubernetes", "the operator did not react", "its log")
        return number

    assert asyncio.run(request(1)) == 1
    with pytest.raises(StartFailed) as caught:
        asyncio.run(request(-1))
    assert caught.value.log_tail == "its log"
    assert caught.value.__cause__ is None
