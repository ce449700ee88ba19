"""References to variables in manifests, as the kubelet expands them."""

from __future__ import annotations

import re
from collections.abc import Mapping


def expand(text: str, known: Mapping[str, str]) -> str:
    """Return a value or argument with ``$(NAME)`` and ``$$`` expanded."""

    def expand_reference(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else known.get(name, match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", expand_reference, text)
