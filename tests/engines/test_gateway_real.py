"""The gateway engine on a real server: the contract, in the two ways that servers have options."""

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

# Workers have no tests to import the function below from.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def terminate(dask_worker: Any) -> Any:
    return dask_worker.memory_manager.memory_terminate_fraction


class TestContract(OneClusterContract):
    """With the example of dask-gateway's manual: cores and memory are all that can be said."""

    engine = "gateway"
    small = SMALL

    def check_terminate(self, cluster: Any, expected: float) -> None:
        with Client(cluster, set_as_default=False) as client:
            assert set(client.run(terminate, nanny=True).values()) == {expected}


class TestContractWithVariables(TestContract):
    """With an option for variables, through which the memory policy then goes."""

    small: ClassVar[dict[str, Any]] = {**SMALL, "engine_options": {"plan_options": TOLD}}
