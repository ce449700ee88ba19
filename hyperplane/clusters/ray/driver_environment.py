"""Environment variables with which ``ray.init()`` connects this process to a cluster.

Child processes get them, too. After the cluster has closed, the variables have their former values.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperplane.clusters.local_nodes.cluster_variables import ClusterVariables

#: Without it Ray replaces a loopback address by that of a network interface, which does not answer.
_LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
#: Variables of Ray with the files of a certificate, its private key, and that of the authority.
_TLS_VARIABLES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
#: Variables of Ray that select a cluster, its token and its certificates.
VARIABLES = (
    "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", _LOOPBACK_VARIABLE,
    "RAY_USE_TLS", *_TLS_VARIABLES,
)  # fmt: skip

#: Addresses of Ray Client begin with it.
CLIENT_SCHEME = "ray://"

Variables = Mapping[str, str | None]

_clusters = ClusterVariables(VARIABLES, "RAY_ADDRESS", lambda: _read_again())


def build_variables(token: str, loopback: bool, tls_folder: str = "") -> dict[str, str | None]:
    """Return the variables of processes that use a cluster; None for variables to remove.

    Parameters
    ----------
    token : str
        The token of the cluster.
    loopback : bool
        Whether all its nodes are at the loopback address.
    tls_folder : str
        Folder with the certificates; "" without TLS.
    """
    files: dict[str, str | None] = dict.fromkeys(_TLS_VARIABLES)
    if tls_folder:
        # Imported here: it needs cryptography, which clusters of this machine do not.
        from hyperplane.clusters.remote_nodes.certificates import FILE_NAMES

        paths = (str(Path(tls_folder, name)) for name in FILE_NAMES)
        files.update(zip(_TLS_VARIABLES, paths, strict=True))
    return {
        "RAY_ADDRESS": None,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_AUTH_TOKEN_PATH": None,
        _LOOPBACK_VARIABLE: "0" if loopback else None,
        "RAY_USE_TLS": "1" if tls_folder else None,
        **files,
    }


def set_variables(address: str, variables: Variables) -> None:
    """Make ``ray.init()`` connect to a cluster, in this process and in its child processes."""
    _clusters.set({**variables, "RAY_ADDRESS": address})


def restore_variables(address: str) -> None:
    """Disconnect this process from a cluster that closes, and restore the variables before it."""
    with _clusters.lock:
        disconnect(address)
        _clusters.restore(address)


def connect(address: str, variables: Variables) -> Any:
    """Connect this process to a cluster, unless it is, and return the module ``ray``."""
    with _clusters.lock, contextlib.ExitStack() as failure:
        if address not in _clusters:
            failure.callback(restore_variables, address)
        if not _clusters.in_effect(address):
            set_variables(address, variables)
        import ray

        _read_again()
        if not ray.is_initialized():
            ray.init(address=address)
        elif (other := _connected_address(ray)) != address:
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
    if _connected_address(ray) == address:
        ray.shutdown()


def _connected_address(ray: Any) -> str:
    """Return the address that this process is connected to, also through Ray Client."""
    client = ray.util.client.ray
    if client.is_connected():
        # Not the address of the head, which a client has to ask for.
        return f"{CLIENT_SCHEME}{client.get_context().client_worker._conn_str}"
    address: str = ray.get_runtime_context().gcs_address
    return address


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
