"""The client of a Ray cluster: connects this process when it is first used."""

from __future__ import annotations

from collections.abc import Callable
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
    find_end : callable, optional
        Returns why the cluster has ended, or an empty text while it runs.
    """

    def __init__(
        self,
        engine: str,
        address: str,
        token: str,
        attached: bool = False,
        find_end: Callable[[], str] | None = None,
    ) -> None:
        self.engine, self.address, self._token = engine, address, token
        self._attached, self._find_end = attached, find_end

    @property
    def ray(self) -> Any:
        """The module ``ray``, connected to the cluster.

        Raises
        ------
        EngineError
            If the cluster has ended, with the reason, or if it does not answer.
        """
        # First: Ray tries for minutes to connect to a head that has ended.
        if self._find_end is not None and (reason := self._find_end()):
            raise EngineError(self.engine, f"the cluster has ended: {reason}")
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
