"""Pods as all that is run on Kubernetes has them: the settings in the terms of manifests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hyperplane.spec.settings import KubernetesSettings


def container_of(name: str, settings: KubernetesSettings) -> dict[str, Any]:
    """A container of the image, with no rights that work does not need."""
    policy = {"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"name": name, "image": settings.image, **policy, "securityContext": rights}


def pod_of(
    container: dict[str, Any], nodes: dict[str, str], settings: KubernetesSettings
) -> dict[str, Any]:
    """A pod of one container, on nodes with some labels, with no rights that work does not need."""
    context: dict[str, Any] = {"runAsNonRoot": settings.run_as_non_root}
    if settings.run_as_user is not None:
        context["runAsUser"] = settings.run_as_user
    found: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # Else every service of the namespace becomes variables, and Dask reads all DASK_ ones.
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
    """What stands before and behind the first = of each text."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def verbatim(text: str) -> str:
    """A text in which Kubernetes sees no reference to a variable."""
    return text.replace("$", "$$")
