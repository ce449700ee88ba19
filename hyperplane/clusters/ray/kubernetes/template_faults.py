"""Faults of templates of worker pods that would replace the certificate or the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hyperplane.clusters.ray.kubernetes.render import (
    AUTHORITY_FOLDER,
    CERTIFICATE_CONTAINER,
    TLS_FOLDER,
    TOKEN_FOLDER,
)
from hyperplane.core.errors import Fault, RequestError
from hyperplane.platforms.kubernetes.pod_template import read_template

#: Names and paths in a pod with which it gets the token, and with TLS its certificate.
_VOLUMES = ("token", "tls", "authority")
_FOLDERS = tuple(map(PurePosixPath, (TOKEN_FOLDER, TLS_FOLDER, AUTHORITY_FOLDER)))


def find_template_faults(source: str | None, tls: bool) -> list[Fault]:
    """Return a fault for each item of a template that would replace one of the cluster."""
    if not source:
        return []
    try:
        pod = read_template(source)["spec"]
    except RequestError:  # which is another fault of the same argument
        return []
    return [
        Fault("worker_spec_yaml", f"{where} = {name!r}", "another one: the cluster needs this one")
        for where, name in _list_reserved(pod, tls)
    ]


def _list_reserved(pod: dict[str, Any], tls: bool) -> Iterator[tuple[str, str]]:
    volumes, folders = (_VOLUMES, _FOLDERS) if tls else (_VOLUMES[:1], _FOLDERS[:1])
    for number, each in _iterate_items(pod, "initContainers"):
        if tls and each.get("name") == CERTIFICATE_CONTAINER:
            yield f"initContainers[{number}].name", CERTIFICATE_CONTAINER
    for number, each in _iterate_items(pod, "volumes"):
        if (name := each.get("name")) in volumes:
            yield f"volumes[{number}].name", str(name)
    for number, each in _iterate_items(pod["containers"][0], "volumeMounts"):
        path = PurePosixPath(str(each.get("mountPath")))
        # A parent would hide the folder, too.
        if any(path in (one, *one.parents) or one in path.parents for one in folders):
            yield f"containers[0].volumeMounts[{number}].mountPath", str(path)


def _iterate_items(parent: dict[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    items = parent.get(key)
    for number, each in enumerate(items if isinstance(items, list) else ()):
        if isinstance(each, dict):
            yield number, each
