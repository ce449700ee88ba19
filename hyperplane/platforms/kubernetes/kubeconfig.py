"""Find the configuration for requests: that of kubectl, or the service account of a pod."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

#: File of kubectl's configuration if the variable KUBECONFIG is not set.
DEFAULT_KUBECONFIG = "~/.kube/config"
#: Folder in which Kubernetes gives a pod its service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def is_in_pod() -> bool:
    """Return whether this process runs in a pod, and so in the network of a Kubernetes cluster."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and SERVICE_ACCOUNT.is_dir()


def read_pod_namespace() -> str:
    """Return the namespace of the pod in which this process runs; empty outside of pods."""
    file = SERVICE_ACCOUNT / "namespace"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def resolve_kubeconfig(namespace: str | None, context: str | None) -> dict[str, str]:
    """Return the kubeconfig, context and namespace that kubectl would use now.

    The result is empty if there is no kubeconfig, as in a pod with a service account.
    """
    files = (os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG).split(os.pathsep)
    paths = [Path(file).expanduser().absolute() for file in files if file]
    contents = [content for content in map(_read_kubeconfig, paths) if content]
    if not contents:
        return {}
    resolved = {"kubeconfig": os.pathsep.join(map(str, paths))}
    current = context or next(
        (str(content["current-context"]) for content in contents if content.get("current-context")),
        "",
    )
    if current:
        resolved["context"] = current
    contexts = [entry for content in contents for entry in content.get("contexts") or ()]
    selected = next(
        (entry.get("context") or {} for entry in contexts if entry.get("name") == current), {}
    )
    if namespace or selected.get("namespace"):
        resolved["namespace"] = namespace or str(selected["namespace"])
    return resolved


def _read_kubeconfig(path: Path) -> dict[str, Any]:
    with suppress(OSError, yaml.YAMLError):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}
