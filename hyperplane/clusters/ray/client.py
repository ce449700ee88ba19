"""The client of a Ray cluster: connects this process when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hyperplane.clusters.ray import driver_environment
from hyperplane.core.errors import EngineError


class RayClient:
    """Connection of this process to a Ray cluster.

    ``ray.init()`` without an address, or any function of ``ray``, connects to the same cluster.

    Parameters
    ----------
    engine, address : str
        The engine of the cluster, and the address of its head.
    variables : mapping of str to str or None
        Environment variables of processes that use the cluster, among them its token.
    disconnect : callable
        Disconnects this process.
    find_end : callable, optional
        Returns why the cluster has ended, or an empty text while it runs.
    """

    def __init__(
        self,
        engine: str,
        address: str,
        variables: Mapping[str, str | None],
        disconnect: Callable[[], None],
        find_end: Callable[[], str] | None = None,
    ) -> None:
        self.engine, self.address, self._variables = engine, address, variables
        self._disconnect, self._find_end = disconnect, find_end

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
            return driver_environment.connect(self.address, self._variables)
        except (RuntimeError, ConnectionError, TimeoutError) as error:
            raise EngineError(self.engine, str(error)) from error

    def close(self) -> None:
        """Disconnect this process; the cluster keeps running. Safe to call repeatedly.

        If another process owns the cluster, ``ray.init()`` no longer connects to it.
        """
        self._disconnect()

    def __repr__(self) -> str:
        return f"<RayClient {self.address}>"
