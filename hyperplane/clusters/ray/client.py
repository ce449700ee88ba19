"""The client of a Ray cluster: connects this process when it is first used."""

from __future__ import annotations

from typing import Any

from hyperplane.clusters.ray import driver_environment
from hyperplane.core.errors import EngineError


class RayClient:
    """Connection of this process to a Ray cluster.

    ``ray.init()`` without an address, or any function of ``ray``, connects to the same cluster.

    Parameters
    ----------
    engine, address, token : str
        The engine of the cluster, the address of its head, and its token.
    attached : bool
        Whether another process owns the cluster.
    """

    def __init__(self, engine: str, address: str, token: str, attached: bool = False) -> None:
        self.engine, self.address, self._token = engine, address, token
        self._attached = attached

    @property
    def ray(self) -> Any:
        """The module ``ray``, connected to the cluster."""
        try:
            return driver_environment.connect(self.address, self._token)
        except (RuntimeError, ConnectionError, TimeoutError) as error:
            raise EngineError(self.engine, str(error)) from error

    def close(self) -> None:
        """Disconnect this process; the cluster keeps running. Safe to call repeatedly.

        If another process owns the cluster, ``ray.init()`` no longer connects to it.
        """
        if self._attached:
            driver_environment.restore_variables(self.address)
        else:
            driver_environment.disconnect(self.address)

    def __repr__(self) -> str:
        return f"<RayClient {self.address}>"
