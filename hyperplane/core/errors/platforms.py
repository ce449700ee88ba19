"""Errors of platforms, such as Kubernetes and ssh."""

from __future__ import annotations

from hyperplane.core.errors.base import HyperplaneError


class PlatformError(HyperplaneError, RuntimeError):
    """A platform refused a request or could not be reached; the message says what to do.

    Engines raise it as an ``EngineError``, runners of jobs as the failure of an attempt.

    Attributes
    ----------
    platform : str
        Name of the platform.
    """

    def __init__(self, platform: str, message: str) -> None:
        super().__init__(message)
        self.platform = platform
