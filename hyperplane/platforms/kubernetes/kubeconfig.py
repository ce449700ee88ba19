"""Find the configuration for requests: that of kubectl, or the service account of a pod."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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


def uses_port_forward(setting: str) -> bool:
    """Return whether ports of pods are forwarded, by ``always``, ``never`` or ``auto``."""
    return setting == "always" or (setting == "auto" and not is_in_pod())


def read_pod_namespace() -> str:
    """Return the namespace of the pod in which this process runs; empty outside of pods."""
    file = SERVICE_ACCOUNT / "namespace"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def resolve_kubeconfig(namespace: str | None, context: str | None) -> dict[str, str]:
    """Return the kubeconfig, context and namespace that kubectl would use now.

    The result is empty if there is no kubeconfig, as in a pod with a service account.
    """
    paths = _list_kubeconfigs()
    contents = [content for content in map(_read_kubeconfig, paths) if content]
    if not contents:
        return {}
    resolved = {"kubeconfig": os.pathsep.join(map(str, paths))}
    current = context or _find_current_context(contents)
    if current:
        resolved["context"] = current
    selected = _find_entry(contents, "contexts", current)
    if namespace or selected.get("namespace"):
        resolved["namespace"] = namespace or str(selected["namespace"])
    return resolved


def read_server(context: str | None) -> str:
    """Return the URL of the API server that kubectl would use now; empty without a kubeconfig."""
    contents = [content for content in map(_read_kubeconfig, _list_kubeconfigs()) if content]
    selected = _find_entry(contents, "contexts", context or _find_current_context(contents))
    return str(_find_entry(contents, "clusters", selected.get("cluster", "")).get("server", ""))


def _list_kubeconfigs() -> list[Path]:
    files = (os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG).split(os.pathsep)
    return [Path(file).expanduser().absolute() for file in files if file]


def _find_current_context(contents: Sequence[Mapping[str, Any]]) -> str:
    contexts = (content.get("current-context") for content in contents)
    return next((str(context) for context in contexts if context), "")


def _find_entry(contents: Sequence[Mapping[str, Any]], kind: str, name: str) -> Mapping[str, Any]:
    """Return the context or cluster of a name; an empty one if there is none."""
    entries = [entry for content in contents for entry in content.get(kind) or ()]
    field = kind.removesuffix("s")
    return next((entry.get(field) or {} for entry in entries if entry.get("name") == name), {})


def _read_kubeconfig(path: Path) -> dict[str, Any]:
    with suppress(OSError, yaml.YAMLError):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}
