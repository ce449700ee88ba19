"""Labels and Secrets of objects on Kubernetes, and texts in their manifests."""

from __future__ import annotations

import base64
import getpass
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

#: Label of all objects.
MANAGED_BY = {"app.kubernetes.io/managed-by": "hyperplane"}
#: Label of clusters with the user who started them.
OWNER = "hyperplane.dev/owner"
_LONGEST_LABEL = 63
#: Login names that all users of a container image have.
_SHARED_LOGINS = frozenset({"jovyan", "root", "unknown"})


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return a mapping from texts of the form ``key=value``."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def find_owner(labels: Iterable[str]) -> str:
    """Return the value of the owner's label: that of the settings, or the name of the user.

    The name is that in JupyterHub, where all users have the same login name, or the login name.

    Examples
    --------
    >>> find_owner(["team=flights", "hyperplane.dev/owner=ada"])
    'ada'
    """
    if owner := parse_pairs(labels).get(OWNER):
        return owner
    login = os.environ.get("JUPYTERHUB_USER")
    if not login:
        try:
            login = getpass.getuser()
        except (KeyError, OSError):  # a container without an entry for its user
            login = str(os.getuid())
    return re.sub(r"[^A-Za-z0-9_.-]", "-", login)[:_LONGEST_LABEL].strip("-_.") or "unknown"


def is_shared_owner(owner: str) -> bool:
    """Return whether several users may have this value of the owner's label.

    Examples
    --------
    >>> is_shared_owner("jovyan"), is_shared_owner("1000"), is_shared_owner("ada")
    (True, True, False)
    """
    return owner in _SHARED_LOGINS or owner.isdecimal()


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
