"""Errors of requests to the API server of Kubernetes; importing them does not need kr8s."""

from __future__ import annotations

from hyperplane.core.errors.platforms import PlatformError

#: Name of the platform in errors.
PLATFORM = "kubernetes"
#: HTTP statuses.
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, INVALID = 401, 403, 404, 409, 422

#: Response codes of an API server that is overloaded or starting.
_BUSY = {429, 500, 502, 503, 504}


class KubernetesError(PlatformError):
    """The API server of Kubernetes does not answer a request; base of the errors below."""

    def __init__(self, message: str) -> None:
        super().__init__(PLATFORM, message)


class KubeconfigError(KubernetesError):
    """There is no usable configuration of kubectl."""


class PortForwardError(KubernetesError):
    """No port can be forwarded to a service."""


class ObjectNotFound(KubernetesError):
    """An object of Kubernetes does not exist."""


class RequestRefused(KubernetesError):
    """The API server refuses a request.

    Attributes
    ----------
    status : int
        HTTP status of the response.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    def name_exists(self) -> bool:
        """Return whether an object of that name already exists."""
        return self.status == CONFLICT and "already exists" in str(self)

    def is_retryable(self) -> bool:
        """Return whether the refusal may be temporary."""
        if self.status == CONFLICT:
            return not self.name_exists()  # otherwise a concurrent change of the quota
        exceeded = self.status == FORBIDDEN and "exceeded quota" in str(self)
        return exceeded or self.status in _BUSY


def describe_refusal(status: int, message: str, action: str, namespace: str) -> str:
    """Return the message of a refused request: the reason and advice."""
    where = f"in namespace {namespace!r}" if namespace else "of this context"
    if status == UNAUTHORIZED:
        return (
            f"the API server refuses the login ({action}): {message}. Log in again as for kubectl"
        )
    if status == FORBIDDEN:
        return (
            f"not allowed to {action} {where}: {message}. The permissions that hyperplane needs "
            "are in config/kubernetes/rbac.yaml; ask for them, or use another namespace"
        )
    if status == CONFLICT and "has been modified" in message:
        return f"another program changed it at the same time ({action}): {message}. Try again"
    if status == CONFLICT:
        return f"the name is already in use {where}: {message}. Use another name"
    if status == INVALID:
        return f"the API server refuses the manifest ({action}): {message}"
    return f"the API server answered {status} ({action}): {message}"
