"""Labels and Secrets of objects on Kubernetes, and texts in their manifests."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

#: Label of all objects.
MANAGED_BY = {"app.kubernetes.io/managed-by": "hyperplane"}


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return a mapping from texts of the form ``key=value``."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def escape_variables(text: str) -> str:
    """Escape ``$`` in a text, so that Kubernetes does not expand it as a variable."""
    return text.replace("$", "$$")


def build_owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference to an object from the API server, with which others are deleted."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    return reference | {key: owner["metadata"][key] for key in ("name", "uid")}


def build_secret(
    owner: Mapping[str, Any], name: str, labels: Mapping[str, str], contents: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return a Secret that Kubernetes deletes with its owner.

    Parameters
    ----------
    owner : mapping
        An object from the API server.
    name : str
        Name of the Secret.
    labels : mapping of str to str
        Labels of the Secret.
    contents : mapping of str to bytes
        Contents of the Secret, by key.
    """
    reference = build_owner_reference(owner)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": dict(labels), "ownerReferences": [reference]},
        "data": {key: base64.b64encode(content).decode() for key, content in contents.items()},
    }


def read_secret(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the contents of a Secret by key."""
    return {key: base64.b64decode(text) for key, text in secret["data"].items()}
