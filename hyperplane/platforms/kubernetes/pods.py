"""Parts of pod manifests that clusters and jobs on Kubernetes share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hyperplane.spec.settings import KubernetesSettings


def container_of(name: str, settings: KubernetesSettings) -> dict[str, Any]:
    """Return a container with the image of the settings and without extra privileges."""
    policy = {"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"name": name, "image": settings.image, **policy, "securityContext": rights}


def pod_of(
    container: dict[str, Any], nodes: dict[str, str], settings: KubernetesSettings
) -> dict[str, Any]:
    """Return the spec of an unprivileged pod with one container, on nodes with given labels."""
    context: dict[str, Any] = {"runAsNonRoot": settings.run_as_non_root}
    if settings.run_as_user is not None:
        context["runAsUser"] = settings.run_as_user
    found: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # Otherwise every service of the namespace sets environment variables, and Dask reads those
        # that begin with DASK_ as its configuration.
        "enableServiceLinks": False,
        "securityContext": {**context, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    if settings.service_account:
        found["serviceAccountName"] = settings.service_account
    if settings.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if nodes:
        found["nodeSelector"] = nodes
    if settings.tolerations:
        found["tolerations"] = [
            one.model_dump(exclude_none=True, by_alias=True) for one in settings.tolerations
        ]
    found["containers"] = [container]
    return found


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return a mapping from texts of the form ``key=value``."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def verbatim(text: str) -> str:
    """Escape ``$`` in a text, so that Kubernetes does not expand it as a variable."""
    return text.replace("$", "$$")
