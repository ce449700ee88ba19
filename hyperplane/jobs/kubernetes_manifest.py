"""What all manifests for Kubernetes have in common: their text, and what their pods may not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

#: Of a pod, and of its container: no rights that a job does not need.
SAFE_POD: Mapping[str, Any] = {
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}
SAFE_CONTAINER: Mapping[str, Any] = {
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
#: Texts that every parser of YAML takes for text: to some y is true, and 1e3 a number.
_PLAIN_TEXT = re.compile("[A-Za-z][A-Za-z0-9./-]+")


def dump_yaml(manifest: Mapping[str, Any]) -> str:
    """A manifest as text, which every parser takes for the same."""
    found: str = yaml.dump(
        manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return found


class _Dumper(yaml.SafeDumper):
    """Texts in quotes where some parser may take them for something else; no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN_TEXT.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)
