"""Environment variables that connect programs of this process to the last of its clusters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence


class ClusterVariables:
    """The variables of the clusters of one framework.

    When the last cluster closes, they have the values from before the first one. Child processes
    get the variables, too.

    Parameters
    ----------
    names : sequence of str
        All variables that a cluster may set.
    key : str
        The one of them whose value identifies a cluster.
    on_change : callable
        Called after each change of the variables.
    """

    def __init__(
        self, names: Sequence[str], key: str, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._names, self._key, self._on_change = tuple(names), key, on_change
        self._former: dict[str, str | None] = {}
        #: Variables of each cluster by its key; the last one is in effect.
        self._clusters: dict[str, dict[str, str | None]] = {}
        #: Held by functions that change variables and then connect.
        self.lock = threading.RLock()

    def __contains__(self, key: str) -> bool:
        """Return whether a cluster has variables."""
        return key in self._clusters

    @property
    def in_use(self) -> bool:
        """Whether any cluster has variables."""
        return bool(self._clusters)

    def in_effect(self, key: str) -> bool:
        """Return whether programs connect to this cluster."""
        return os.environ.get(self._key) == key

    def read_former(self, name: str) -> str | None:
        """Return the value of a variable without any cluster."""
        with self.lock:
            return self._former.get(name) if self._clusters else os.environ.get(name)

    def set(self, variables: Mapping[str, str | None]) -> None:
        """Connect programs to a cluster; None is the value of variables to remove."""
        with self.lock:
            if not self._clusters:
                self._former.update({name: os.environ.get(name) for name in self._names})
            key = str(variables[self._key])
            self._clusters.pop(key, None)
            self._clusters[key] = dict(variables)
            self._apply(variables)

    def restore(self, key: str) -> None:
        """Remove the variables of a cluster, and apply those before it if they were in effect."""
        with self.lock:
            # If they are not, the program has set another value, which remains.
            if self._clusters.pop(key, None) is not None and self.in_effect(key):
                self._apply([self._former, *self._clusters.values()][-1])

    def _apply(self, variables: Mapping[str, str | None]) -> None:
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._on_change()
