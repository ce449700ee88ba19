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
SHORTEST = 6
_BLOCK = 1 << 20
#: Of a notebook, what no program has printed.
_FIXED = {"cell_type", "output_type", "id"}


def redacted(text: str, values: Collection[str]) -> str:
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
    return _without(text, _forms(values))


def redact(log: Path, values: Sequence[str]) -> None:
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
    forms = _forms(values)
    if not forms or not log.exists():
        return
    if log.suffix != ".ipynb" or not _in_notebook(log, forms):
        _in_log(log, forms)


def _in_log(log: Path, forms: Sequence[bytes]) -> None:
    overlap = len(forms[0]) - 1
    size = max(_BLOCK, 2 * overlap)
    with log.open("r+b") as opened:
        place = 0
        while len(block := _at(opened, place, size)) > (overlap if place else 0):
            clean = _starred(block, forms)
            if clean != block:
                opened.seek(place)
                opened.write(clean)
            place += max(1, len(block) - overlap)


def _in_notebook(notebook: Path, forms: Sequence[bytes]) -> bool:
    """Whether it could be read as JSON; only its texts are looked at, so that it stays JSON."""
    try:
        found = json.loads(notebook.read_bytes())
    except (ValueError, RecursionError):
        return False
    clean = _cleaned(found, forms)
    if clean != found:
        place = notebook.resolve()
        draft = place.with_name(f".{place.name}.draft")
        text = json.dumps(clean, ensure_ascii=False, indent=1) + "\n"
        draft.touch(mode=0o600)
        draft.write_bytes(text.encode(errors="surrogatepass"))
        shutil.copymode(place, draft)
        draft.replace(place)
    return True


def _cleaned(value: Any, forms: Sequence[bytes], *, shown: bool = False) -> Any:
    """A part of a notebook; ``shown`` below what an output shows, where all is the user's."""
    if isinstance(value, str):
        return _without(value, forms)
    if isinstance(value, list):
        return [_cleaned(one, forms, shown=shown) for one in value]
    if isinstance(value, dict) and shown:
        return {
            _without(key, forms): _cleaned(one, forms, shown=True) for key, one in value.items()
        }
    if isinstance(value, dict):
        return {
            key: one if key in _FIXED else _cleaned(one, forms, shown=key == "data")
            for key, one in value.items()
        }
    return value


def _without(text: str, forms: Sequence[bytes]) -> str:
    raw = text.encode(errors="surrogatepass")
    clean = _starred(raw, forms)
    return text if clean == raw else clean.decode(errors="surrogatepass")


def _starred(block: bytes, forms: Iterable[bytes]) -> bytes:
    """A block with stars where any form is; forms that overlap go, both of them."""
    clean = bytearray(block)
    for form in forms:
        place = block.find(form)
        while place >= 0:
            clean[place : place + len(form)] = b"*" * len(form)
            place = block.find(form, place + 1)
    return bytes(clean)


def _forms(values: Iterable[str]) -> list[bytes]:
    """All that a log may show of secrets, the longest first."""
    found: set[str] = set()
    for value in values:
        if len(value) >= SHORTEST:
            lines = [line.strip() for line in value.splitlines()]
            found |= {form for line in lines for form in _written(line)} | _written(value)
            found |= {quote(value), quote(value, safe=""), quote_plus(value)} | _in_base64(value)
    wanted = {form.encode() for form in found if len(form) >= SHORTEST}
    return sorted(wanted, key=lambda form: (-len(form), form))


def _written(value: str) -> set[str]:
    """A value as programs write it into other text."""
    return {
        value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1], ascii(value)[1:-1], repr(value.encode())[2:-1],
        value.replace("'", "'\\''"), html.escape(value), html.escape(value, quote=False),
    }  # fmt: skip


def _in_base64(value: str) -> set[str]:
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


def _at(opened: BinaryIO, place: int, size: int) -> bytes:
    opened.seek(place)
    return opened.read(size)
