"""Mask secrets that a step prints in its log, notebook and failure reason.

``step_wrapper.py`` imports this file without the package, to mask the log while it writes it.
"""

from __future__ import annotations

import base64
import html
import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, quote_plus

#: Minimum length of a masked secret: shorter ones occur in ordinary text.
MIN_LENGTH = 6
_BLOCK_BYTES = 1 << 20
#: Keys of a notebook whose values are not program output.
_FIXED_KEYS = {"cell_type", "output_type", "id"}


def redact_text(text: str, values: Collection[str]) -> str:
    """Replace secrets in a text by asterisks.

    Parameters
    ----------
    text : str
        The text.
    values : collection of str
        Secrets; those of fewer than six characters are not masked. The value and each of its lines
        are masked, also in the forms of JSON, Python, bash, URLs, HTML and base64.

    Examples
    --------
    >>> redact_text("postgresql://me:p%40ssword@db", ["p@ssword"])
    'postgresql://me:**********@db'
    """
    return _mask_text(text, _secret_forms(values))


def redact_file(log: Path, values: Sequence[str]) -> None:
    """Replace secrets by asterisks in a file that is no longer written to.

    Parameters
    ----------
    log : Path
        A log, which keeps its length, or a notebook, which remains valid JSON. A missing file is
        ignored.
    values : sequence of str
        Secrets, as for :func:`redact_text`.

    Raises
    ------
    OSError
        If the file cannot be read or written.
    """
    forms = _secret_forms(values)
    if not forms or not log.exists():
        return
    if log.suffix != ".ipynb" or not _redact_notebook(log, forms):
        _redact_log(log, forms)


class SecretMasker:
    """Replaces secrets by asterisks in output that arrives in blocks, which may divide a secret.

    Parameters
    ----------
    values : collection of str
        Secrets, as for :func:`redact_text`.
    """

    def __init__(self, values: Collection[str]) -> None:
        self._forms = _secret_forms(values)
        #: The end of the output so far if a secret may begin there, as it was and masked.
        self._raw = self._clean = b""

    def mask(self, block: bytes) -> bytes:
        """Return the output up to where a secret may have begun, without secrets."""
        raw = self._raw + block
        clean = _mask_bytes(raw, self._forms, self._clean + block)
        end = len(raw) - self._find_begun(raw)
        self._raw, self._clean = raw[end:], clean[end:]
        return clean[:end]

    def flush(self) -> bytes:
        """Return the rest of the output, at its end."""
        rest, self._raw, self._clean = self._clean, b"", b""
        return rest

    def _find_begun(self, raw: bytes) -> int:
        """Return the length of the longest end of a text that is the beginning of a secret."""
        longest = 0
        for form in self._forms:
            at = raw.find(form[:1], max(0, len(raw) - len(form) + 1))
            while 0 <= at < len(raw) - longest:
                if form.startswith(raw[at:]):
                    longest = len(raw) - at
                at = raw.find(form[:1], at + 1)
        return longest


def _redact_log(log: Path, forms: Sequence[bytes]) -> None:
    overlap = len(forms[0]) - 1
    size = max(_BLOCK_BYTES, 2 * overlap)
    with log.open("r+b") as opened:
        offset = 0
        while len(block := _read_at(opened, offset, size)) > (overlap if offset else 0):
            clean = _mask_bytes(block, forms)
            if clean != block:
                opened.seek(offset)
                opened.write(clean)
            offset += max(1, len(block) - overlap)


def _redact_notebook(notebook: Path, forms: Sequence[bytes]) -> bool:
    """Mask only the texts of a notebook; return False if it is not valid JSON."""
    try:
        document = json.loads(notebook.read_bytes())
    except (ValueError, RecursionError):
        return False
    clean = _redact_value(document, forms)
    if clean != document:
        path = notebook.resolve()
        draft = path.with_name(f".{path.name}.draft")
        text = json.dumps(clean, ensure_ascii=False, indent=1) + "\n"
        draft.touch(mode=0o600)
        draft.write_bytes(text.encode(errors="surrogatepass"))
        shutil.copymode(path, draft)
        draft.replace(path)
    return True


def _redact_value(value: Any, forms: Sequence[bytes], *, shown: bool = False) -> Any:
    """Mask a part of a notebook; ``shown`` is for displayed data, whose keys are masked."""
    if isinstance(value, str):
        return _mask_text(value, forms)
    if isinstance(value, list):
        return [_redact_value(item, forms, shown=shown) for item in value]
    if isinstance(value, dict) and shown:
        return {
            _mask_text(key, forms): _redact_value(item, forms, shown=True)
            for key, item in value.items()
        }
    if isinstance(value, dict):
        return {
            key: item if key in _FIXED_KEYS else _redact_value(item, forms, shown=key == "data")
            for key, item in value.items()
        }
    return value


def _mask_text(text: str, forms: Sequence[bytes]) -> str:
    raw = text.encode(errors="surrogatepass")
    clean = _mask_bytes(raw, forms)
    return text if clean == raw else clean.decode(errors="surrogatepass")


def _mask_bytes(block: bytes, forms: Iterable[bytes], masked: bytes | None = None) -> bytes:
    """Replace all occurrences of the forms, including overlapping ones, by asterisks.

    ``masked`` is the block in which some have been replaced already.
    """
    clean = bytearray(block if masked is None else masked)
    for form in forms:
        offset = block.find(form)
        while offset >= 0:
            clean[offset : offset + len(form)] = b"*" * len(form)
            offset = block.find(form, offset + 1)
    return bytes(clean)


def _secret_forms(values: Iterable[str]) -> list[bytes]:
    """Return all forms in which a log may show the secrets, longest first."""
    forms: set[str] = set()
    for value in values:
        if len(value) >= MIN_LENGTH:
            lines = [line.strip() for line in value.splitlines()]
            forms |= {form for line in lines for form in _literal_forms(line)} | _literal_forms(
                value
            )
            text = _encode(value)
            forms |= {quote(text), quote(text, safe=""), quote_plus(text)} | _base64_forms(value)
    wanted = {_encode(form) for form in forms if len(form) >= MIN_LENGTH}
    return sorted(wanted, key=lambda form: (-len(form), form))


def _literal_forms(value: str) -> set[str]:
    """Return a value as programs quote or escape it in other text."""
    return {
        value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1], ascii(value)[1:-1], repr(_encode(value))[2:-1],
        value.replace("'", "'\\''"), html.escape(value), html.escape(value, quote=False),
    }  # fmt: skip


def _base64_forms(value: str) -> set[str]:
    """Return a value in base64, alone or after other text as in ``user:password``."""
    raw = _encode(value)
    forms = set()
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw).decode()
        # The first and last characters also depend on the neighboring bytes.
        first, last = (0, 2, 3)[before], (len(text) // 4) * 4
        last -= (0, 3, 2)[(before + len(raw)) % 3]
        forms |= {text[first:last], text} if not before else {text[first:last]}
    return forms | {text.translate(str.maketrans("+/", "-_")) for text in forms}


def _encode(value: str) -> bytes:
    """Return the bytes of a value, as in the environment if they are no text of UTF-8."""
    return value.encode(errors="surrogateescape")


def _read_at(opened: BinaryIO, offset: int, size: int) -> bytes:
    opened.seek(offset)
    return opened.read(size)
