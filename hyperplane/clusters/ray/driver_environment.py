"""Environment variables with which ``ray.init()`` connects this process to a cluster.

Child processes get them, too. After the cluster has closed, the variables have their former values.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from hyperplane.clusters.local_nodes.cluster_variables import ClusterVariables

#: Without it Ray replaces a loopback address by that of a network interface, which does not answer.
_LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
#: Variables of Ray that select a cluster and its token.
VARIABLES = (
    "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", _LOOPBACK_VARIABLE,
)  # fmt: skip

_clusters = ClusterVariables(VARIABLES, "RAY_ADDRESS", lambda: _read_again())


def build_token_variables(token: str) -> dict[str, str | None]:
    """Return the variables of processes that use a token; None for variables to remove."""
    return {
        "RAY_ADDRESS": None,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_AUTH_TOKEN_PATH": None,
        _LOOPBACK_VARIABLE: "0",
    }


def set_variables(address: str, token: str) -> None:
    """Make ``ray.init()`` connect to a cluster, in this process and in its child processes."""
    _clusters.set({**build_token_variables(token), "RAY_ADDRESS": address})


def restore_variables(address: str) -> None:
    """Disconnect this process from a cluster that closes, and restore the variables before it."""
    with _clusters.lock:
        disconnect(address)
        _clusters.restore(address)


def connect(address: str, token: str) -> Any:
    """Connect this process to a cluster, unless it is, and return the module ``ray``."""
    with _clusters.lock, contextlib.ExitStack() as failure:
        if address not in _clusters:
            failure.callback(restore_variables, address)
        if not _clusters.in_effect(address):
            set_variables(address, token)
        import ray

        _read_again()
        if not ray.is_initialized():
            ray.init(address=address)
        elif ray.get_runtime_context().gcs_address != address:
            other = ray.get_runtime_context().gcs_address
            raise RuntimeError(
                f"this process is connected to the Ray cluster at {other}; call ray.shutdown() "
                f"before you use the one at {address}"
            )
        failure.pop_all()  # connected: the variables remain
        return ray


def disconnect(address: str) -> None:
    """Disconnect this process from a cluster, if it is connected to it.

    Ray ends a process a minute after the head of its cluster has ended.
    """
    ray = sys.modules.get("ray")
    if ray is None or not hasattr(ray, "is_initialized") or not ray.is_initialized():
        return
    if ray.get_runtime_context().gcs_address == address:
        ray.shutdown()


def _read_again() -> None:
    """Make Ray read the variables again; it reads them once, when it is imported."""
    if "ray" not in sys.modules:
        return
    from ray._private import ray_constants
    from ray._raylet import AuthenticationTokenLoader, Config

    if os.environ.get(_LOOPBACK_VARIABLE) == "0":
        ray_constants.ENABLE_RAY_CLUSTER = False
    else:
        ray_constants.ENABLE_RAY_CLUSTER = sys.platform.startswith("linux")
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
