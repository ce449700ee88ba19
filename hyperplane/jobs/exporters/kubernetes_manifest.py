"""YAML text and security settings shared by all Kubernetes manifests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

#: Pod and container settings that grant no permissions a job does not need.
SAFE_POD: Mapping[str, Any] = {
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}
SAFE_CONTAINER: Mapping[str, Any] = {
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
#: Texts that every YAML parser reads as text: to some, ``y`` is true and ``1e3`` a number.
_PLAIN_TEXT = re.compile("[A-Za-z][A-Za-z0-9./-]+")


def dump_yaml(manifest: Mapping[str, Any]) -> str:
    """Dump a manifest as YAML that every parser reads alike."""
    text: str = yaml.dump(
        manifest, Dumper=_ManifestDumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return text


class _ManifestDumper(yaml.SafeDumper):
    """Dumper that quotes ambiguous texts and writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN_TEXT.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_ManifestDumper.add_representer(str, _represent_text)
