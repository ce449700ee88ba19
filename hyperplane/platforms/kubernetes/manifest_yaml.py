"""Manifests of Kubernetes as YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

#: Texts that every YAML parser reads as text, except words such as ``yes``, which PyYAML quotes.
#: Some parsers read ``y`` as true and ``1e3`` as a number.
_PLAIN_TEXT = re.compile("[A-Za-z][A-Za-z0-9./-]+")


def dump_yaml(manifest: Mapping[str, Any], *, blocks: bool = False) -> str:
    """Return a manifest as YAML that all parsers read in the same way.

    With ``blocks``, texts with several lines are literal blocks instead of one quoted line.
    """
    dumper = _BlockDumper if blocks else _ManifestDumper
    text: str = yaml.dump(
        manifest, Dumper=dumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return text


class _ManifestDumper(yaml.SafeDumper):
    """Dumper that quotes ambiguous texts and writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return a text, quoted unless all parsers read it as text."""
        style = None if _PLAIN_TEXT.fullmatch(text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


class _BlockDumper(_ManifestDumper):
    def represent_text(self, text: str) -> yaml.ScalarNode:
        if "\n" in text:
            return self.represent_scalar("tag:yaml.org,2002:str", text, "|")
        return super().represent_text(text)


_ManifestDumper.add_representer(str, _ManifestDumper.represent_text)
_BlockDumper.add_representer(str, _BlockDumper.represent_text)
