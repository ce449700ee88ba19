"""The gateway engine on a real server: the contract, with two kinds of options."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import cloudpickle
import pytest
from contract import OneClusterContract, one_cluster
from distributed import Client
from services_gateway import SMALL, TOLD, gateway, nothing_left, surroundings

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["gateway", "nothing_left", "one_cluster", "surroundings"]  # fixtures

# Workers cannot import the function below from the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def terminate(dask_worker: Any) -> Any:
    return dask_worker.memory_manager.memory_terminate_fraction


class TestContract(OneClusterContract):
    """With the options of dask-gateway's manual: only cores and memory can be set."""

    engine = "gateway"
    small = SMALL

    def check_terminate(self, cluster: Any, expected: float) -> None:
        with Client(cluster, set_as_default=False) as client:
            assert set(client.run(terminate, nanny=True).values()) == {expected}


class TestContractWithVariables(TestContract):
    """With an option for environment variables, which then carries the memory policy."""

    small: ClassVar[dict[str, Any]] = {**SMALL, "engine_options": {"plan_options": TOLD}}
