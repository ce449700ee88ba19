"""Parts of the manifests of pods: containers, variables, volumes, resources and privileges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.platforms.kubernetes.objects import escape_variables, parse_pairs
from hyperplane.spec.settings import PodSettings

#: Resource name of GPUs.
GPU = "nvidia.com/gpu"


def build_container(
    name: str, image: str | None, *, pull_policy: str | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a container without privileges; ``fields`` are additional fields."""
    container: dict[str, Any] = {"name": name, "image": image}
    if pull_policy:
        container["imagePullPolicy"] = pull_policy
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {**container, **fields, "securityContext": security}


def build_unprivileged_pod(
    *, run_as_non_root: bool = True, run_as_user: int | None = None, service_links: bool = True
) -> dict[str, Any]:
    """Return the fields of a pod without access to the API server and without privileges.

    With ``service_links``, its containers have environment variables for each service.
    """
    context: dict[str, Any] = {"runAsNonRoot": run_as_non_root}
    if run_as_user is not None:
        context["runAsUser"] = run_as_user
    links = {} if service_links else {"enableServiceLinks": False}
    return {
        "automountServiceAccountToken": False,
        **links,
        "securityContext": {**context, "seccompProfile": {"type": "RuntimeDefault"}},
    }


def build_configured_pod(settings: PodSettings, nodes: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of an unprivileged pod with the settings, for nodes with these labels."""
    fields = build_unprivileged_pod(
        run_as_non_root=settings.run_as_non_root,
        run_as_user=settings.run_as_user,
        # Dask reads variables that begin with DASK_ as its configuration.
        service_links=False,
    )
    if settings.service_account:
        fields["serviceAccountName"] = settings.service_account
    if settings.image_pull_secrets:
        fields["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if nodes:
        fields["nodeSelector"] = dict(nodes)
    if settings.tolerations:
        fields["tolerations"] = [
            toleration.model_dump(exclude_none=True, by_alias=True)
            for toleration in settings.tolerations
        ]
    return fields


def select_nodes(settings: PodSettings, pool: str, alias: str) -> dict[str, str]:
    """Return the node labels of the settings; without a pool, only those without placeholders."""
    return {
        key: value.replace("{pool}", pool).replace("{alias}", alias)
        for key, value in parse_pairs(settings.node_selector).items()
        if pool or "{" not in value
    }


def build_variables(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return environment variables with these texts, in which Kubernetes expands nothing."""
    return [{"name": name, "value": escape_variables(text)} for name, text in texts.items()]


def build_secret_variable(name: str, secret: str, key: str) -> dict[str, Any]:
    """Return an environment variable with the content of a Secret."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def build_secret_volume(
    name: str, secret: str, mode: int, keys: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a volume with the files of a Secret, or only those of some keys."""
    source: dict[str, Any] = {"secretName": secret}
    if keys:
        source["items"] = [{"key": key, "path": key} for key in keys]
    return {"name": name, "secret": {**source, "defaultMode": mode}}


def round_to_millicores(cores: float) -> int:
    """Return cores in thousandths, rounded up.

    The product is rounded first, because 4.03 * 1000 is 4030.0000000000005.

    Examples
    --------
    >>> round_to_millicores(4.03), round_to_millicores(0.29)
    (4030, 290)
    """
    return math.ceil(round(cores * 1000, 6))


def format_quantities(
    *, millicores: int | None = None, memory: int | None = None, gpus: int = 0
) -> dict[str, str]:
    """Return amounts of resources in the format of Kubernetes; ``memory`` is in bytes.

    Examples
    --------
    >>> format_quantities(millicores=1500, memory=2**30)
    {'cpu': '1500m', 'memory': '1073741824'}
    """
    amounts = {
        "cpu": None if millicores is None else f"{millicores}m",
        "memory": None if memory is None else str(memory),
        GPU: str(gpus) if gpus else None,
    }
    return {name: text for name, text in amounts.items() if text is not None}


def build_resources(amounts: Mapping[str, str], cpu: int, reserved: float) -> dict[str, Any]:
    """Return limits, and requests that are equal except for a fraction of the millicores."""
    requests = {**amounts, "cpu": f"{max(1, math.floor(cpu * reserved))}m"}
    return {"requests": requests, "limits": dict(amounts)}
