"""Digest of the code that a run has executed, by which two runs can be compared."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable
from pathlib import Path

#: Bytes of the largest file that is read; a longer one is no program.
_LARGEST = 50_000_000
#: Characters of a digest that are shown.
SHOWN = 12


def digest_texts(texts: Iterable[str]) -> str:
    """Return the digest of texts in their order.

    Examples
    --------
    >>> digest_texts(["a", "b"]) == digest_texts(["ab"])
    False
    """
    content = json.dumps(list(texts)).encode(errors="surrogatepass")
    return hashlib.sha256(content).hexdigest()


def digest_file(file: Path) -> str:
    """Return the digest of a script or notebook; empty if it cannot be read.

    Of a notebook it has the kinds and sources of the cells: outputs and execution counts change
    with each run.
    """
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return ""
        content = file.read_bytes()
    except (OSError, ValueError):
        return ""
    if file.suffix == ".ipynb":
        try:
            cells = json.loads(content)["cells"]
            return digest_texts(_read_cell(cell) for cell in cells)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass  # no notebook: its bytes count
    return hashlib.sha256(content).hexdigest()


def _read_cell(cell: dict[str, object]) -> str:
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(map(str, source))  # type: ignore[call-overload]
    return f"{cell['cell_type']}\n{text}"
