"""Detect credentials in text by their format."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_PATTERNS = {
    "an AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22,})",
    "a Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
}
_PATTERN = re.compile(
    "|".join(f"(?P<k{n}>{pattern})" for n, pattern in enumerate(_PATTERNS.values()))
)
_KINDS = dict(enumerate(_PATTERNS))


def detect_credential(text: str) -> str:
    """Return the kind of credential that a text contains; empty if none is found.

    Examples
    --------
    >>> detect_credential("AKIA" + "IOSFODNN7EXAMPLE"), detect_credential("MY_TOKEN")
    ('an AWS access key', '')
    """
    match = _PATTERN.search(text)
    return "" if match is None else _KINDS[int(str(match.lastgroup)[1:])]


def find_in_notebook(file: Path) -> list[tuple[str, str]]:
    """Return the cells of a notebook that contain credentials, with the kind of each.

    An item is, for example, ``("cell 3", "a Slack token")``, with cells counted from 1; there is
    at most one for a cell's source and one for its output. Raises OSError if the file cannot
    be read, and ValueError if it is not a notebook.
    """
    try:
        cells = json.loads(file.read_bytes())["cells"]
        texts = [text for number, cell in enumerate(cells, 1) for text in _cell_texts(number, cell)]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise ValueError("a notebook: JSON with cells") from None
    return [(place, kind) for place, text in texts if (kind := detect_credential(text))]


def _cell_texts(number: int, cell: Any) -> list[tuple[str, str]]:
    source = cell["source"]
    output = json.dumps(cell.get("outputs", []))
    return [
        (f"cell {number}", source if isinstance(source, str) else "".join(source)),
        (f"the output of cell {number}", output),
    ]
