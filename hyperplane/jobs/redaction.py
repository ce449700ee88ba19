"""Secrets that a step has printed are taken out of its log, its notebook and its reasons."""

from __future__ import annotations

import base64
import html
import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, quote_plus

#: Characters; shorter ones would take half of the log with them.
MIN_LENGTH = 6
_BLOCK_BYTES = 1 << 20
#: Of a notebook, what no program has printed.
_FIXED_KEYS = {"cell_type", "output_type", "id"}


def redact_text(text: str, values: Collection[str]) -> str:
    """A text with stars in the place of secrets.

    Parameters
    ----------
    text : str
        What is to be shown.
    values : collection of str
        Secrets. Those of fewer than six characters stay. Of the others these go: the value, each
        of its lines, and as JSON, Python, bash, a URL, HTML and base64 write it.

    Returns
    -------
    str

    Examples
    --------
    >>> redacted("postgresql://me:p%40ssword@db", ["p@ssword"])
    'postgresql://me:**********@db'
    """
    return _mask_text(text, _secret_forms(values))


def redact_file(log: Path, values: Sequence[str]) -> None:
    """Put stars in the place of secrets in a file that nobody writes to any more.

    Parameters
    ----------
    log : Path
        A log, which keeps its length, or a notebook, which stays one. Nothing happens if there is
        no such file.
    values : sequence of str
        Secrets, as for :func:`redacted`.

    Raises
    ------
    OSError
        When it cannot be read or written.
    """
    forms = _secret_forms(values)
    if not forms or not log.exists():
        return
    if log.suffix != ".ipynb" or not _redact_notebook(log, forms):
        _redact_log(log, forms)


def _redact_log(log: Path, forms: Sequence[bytes]) -> None:
    overlap = len(forms[0]) - 1
    size = max(_BLOCK_BYTES, 2 * overlap)
    with log.open("r+b") as opened:
        place = 0
        while len(block := _read_at(opened, place, size)) > (overlap if place else 0):
            clean = _mask_bytes(block, forms)
            if clean != block:
                opened.seek(place)
                opened.write(clean)
            place += max(1, len(block) - overlap)


def _redact_notebook(notebook: Path, forms: Sequence[bytes]) -> bool:
    """Whether it could be read as JSON; only its texts are looked at, so that it stays JSON."""
    try:
        found = json.loads(notebook.read_bytes())
    except (ValueError, RecursionError):
        return False
    clean = _redact_value(found, forms)
    if clean != found:
        place = notebook.resolve()
        draft = place.with_name(f".{place.name}.draft")
        text = json.dumps(clean, ensure_ascii=False, indent=1) + "\n"
        draft.touch(mode=0o600)
        draft.write_bytes(text.encode(errors="surrogatepass"))
        shutil.copymode(place, draft)
        draft.replace(place)
    return True


def _redact_value(value: Any, forms: Sequence[bytes], *, shown: bool = False) -> Any:
    """A part of a notebook; ``shown`` below what an output shows, where all is the user's."""
    if isinstance(value, str):
        return _mask_text(value, forms)
    if isinstance(value, list):
        return [_redact_value(one, forms, shown=shown) for one in value]
    if isinstance(value, dict) and shown:
        return {
            _mask_text(key, forms): _redact_value(one, forms, shown=True)
            for key, one in value.items()
        }
    if isinstance(value, dict):
        return {
            key: one if key in _FIXED_KEYS else _redact_value(one, forms, shown=key == "data")
            for key, one in value.items()
        }
    return value


def _mask_text(text: str, forms: Sequence[bytes]) -> str:
    raw = text.encode(errors="surrogatepass")
    clean = _mask_bytes(raw, forms)
    return text if clean == raw else clean.decode(errors="surrogatepass")


def _mask_bytes(block: bytes, forms: Iterable[bytes]) -> bytes:
    """A block with stars where any form is; forms that overlap go, both of them."""
    clean = bytearray(block)
    for form in forms:
        place = block.find(form)
        while place >= 0:
            clean[place : place + len(form)] = b"*" * len(form)
            place = block.find(form, place + 1)
    return bytes(clean)


def _secret_forms(values: Iterable[str]) -> list[bytes]:
    """All that a log may show of secrets, the longest first."""
    found: set[str] = set()
    for value in values:
        if len(value) >= MIN_LENGTH:
            lines = [line.strip() for line in value.splitlines()]
            found |= {form for line in lines for form in _literal_forms(line)} | _literal_forms(
                value
            )
            found |= {quote(value), quote(value, safe=""), quote_plus(value)} | _base64_forms(value)
    wanted = {form.encode() for form in found if len(form) >= MIN_LENGTH}
    return sorted(wanted, key=lambda form: (-len(form), form))


def _literal_forms(value: str) -> set[str]:
    """A value as programs write it into other text."""
    return {
        value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1], ascii(value)[1:-1], repr(value.encode())[2:-1],
        value.replace("'", "'\\''"), html.escape(value), html.escape(value, quote=False),
    }  # fmt: skip


def _base64_forms(value: str) -> set[str]:
    """A value in base64, alone, or behind something else as in ``user:password``."""
    raw = value.encode()
    found = set()
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw).decode()
        # The first and last characters depend on the neighbours, too.
        first, last = (0, 2, 3)[before], (len(text) // 4) * 4
        last -= (0, 3, 2)[(before + len(raw)) % 3]
        found |= {text[first:last], text} if not before else {text[first:last]}
    return found | {text.translate(str.maketrans("+/", "-_")) for text in found}


def _read_at(opened: BinaryIO, place: int, size: int) -> bytes:
    opened.seek(place)
    return opened.read(size)
