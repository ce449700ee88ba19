"""Mask secrets that a step prints in its log, notebook and failure reason.

``step_wrapper.py`` imports this file without the package, to mask the log while it writes it.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, quote_plus

#: Minimum length of a masked secret: shorter ones occur in ordinary text.
MIN_LENGTH = 6
_BLOCK_BYTES = 1 << 20
#: Keys that nbformat defines, and those of their values; other keys are masked, as programs and
#: parameters may choose them.
_NO_KEYS: Mapping[str, Any] = {}
_OUTPUT_KEYS = dict.fromkeys(
    ("output_type", "data", "metadata", "name", "text", "execution_count", "ename", "evalue",
     "traceback"), _NO_KEYS,
)  # fmt: skip
_CELL_KEYS = {
    **dict.fromkeys(
        ("cell_type", "id", "source", "metadata", "execution_count", "attachments"), _NO_KEYS
    ),
    "outputs": _OUTPUT_KEYS,
}
_LANGUAGE_KEYS = dict.fromkeys(("name", "display_name", "language", "version"), _NO_KEYS)
_NOTEBOOK_KEYS = {
    **dict.fromkeys(("nbformat", "nbformat_minor"), _NO_KEYS),
    "cells": _CELL_KEYS,
    "metadata": {"kernelspec": _LANGUAGE_KEYS, "language_info": _LANGUAGE_KEYS},
}
#: Keys of nbformat whose values are not program output: masked, the notebook would not be valid.
_FIXED_KEYS = (
    (_CELL_KEYS, "cell_type"), (_CELL_KEYS, "id"), (_OUTPUT_KEYS, "output_type")
)  # fmt: skip
#: Characters that no form but base64 changes, and the length of the pieces by which long texts of
#: these are found.
_PLAIN, _PIECE = re.compile(r"[A-Za-z0-9_.-]+"), 8
#: Length of forms whose beginnings are found by their first characters, one lookup for each place.
_SHORT_FORM = 1024
#: Characters that programs leave in URLs, each with ``%`` before others: ``quote``, JavaScript,
#: requests and urllib3, browsers in user names and in queries.
_URL_CHARACTERS = (
    "/", "", "!'()*", "!'()*;,/?:@&=+$#", "!#$%&'()*+,/:;=?@[]~", "!#$&'()*+,/:;=?@[]~",
    "!$&'()*+,/:;=?@~", "!$%&'()*+,~", "!$%&()*+,/:;=?@[\\]^`{|}~",
)  # fmt: skip
#: Characters that libraries escape in JSON although they need not: Go and Rails, Jinja and PHP,
#: Gson, and .NET.
_JSON_CHARACTERS = ("", "&<>\u2028\u2029", "&<>'", "&<>'=", "&<>'+`")
_QUOTES, _APOSTROPHES = ('"', "&quot;", "&#34;"), ("'", "&#x27;", "&#39;", "&#039;", "&apos;")
#: Characters that ``printf %q`` of bash escapes.
_BASH_CHARACTERS = re.compile(r"""[ !"$&'()*,;<>?\[\\\]^`{|}]|(?<=[:=])~""")
_CONTROL_CHARACTERS = {
    **{number: f"\\{number:03o}" for number in (*range(32), 127)},
    **dict(zip(map(ord, "\a\b\x1b\f\n\r\t\v"), map("\\{}".format, "abEfnrtv"), strict=True)),
    ord("\\"): "\\\\", ord("'"): "\\'",
}  # fmt: skip


def redact_text(text: str, values: Collection[str]) -> str:
    """Replace secrets in a text by asterisks.

    Parameters
    ----------
    text : str
        The text.
    values : collection of str
        Secrets; those of fewer than six characters are not masked. The value and each of its lines
        are masked, also in the forms of JSON, Python, shells, URLs, HTML, YAML, SQL and base64.

    Examples
    --------
    >>> redact_text("postgresql://me:p%40ssword@db", ["p@ssword"])
    'postgresql://me:**********@db'
    """
    return _mask_text(text, _SecretForms(values))


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
    forms = _SecretForms(values)
    if not forms.max_length or not log.exists():
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
        self._forms = _SecretForms(values)
        #: The end of the output so far if a secret may begin there, as it was and masked.
        self._raw = self._clean = b""

    def mask(self, block: bytes) -> bytes:
        """Return the output up to where a secret may have begun, without secrets."""
        raw = self._raw + block
        clean = self._forms.mask(raw, self._clean + block)
        end = len(raw) - self._forms.find_begun(raw)
        self._raw, self._clean = raw[end:], clean[end:]
        return clean[:end]

    def flush(self) -> bytes:
        """Return the rest of the output, at its end."""
        rest, self._raw, self._clean = self._clean, b"", b""
        return rest


class _SecretForms:
    """All forms in which output may show the secrets.

    A secret of 1,500 lines has thousands of them, which are not searched one by one: each has a
    plain text that is the same in the other forms of the line, and of long plain texts only each
    eighth piece of the output is looked up.
    """

    def __init__(self, values: Iterable[str]) -> None:
        by_plain: dict[bytes, set[bytes]] = defaultdict(set)
        for value in values:
            if len(value) >= MIN_LENGTH:
                for plain, form in _find_forms(value):
                    if len(form) >= MIN_LENGTH:
                        by_plain[plain].add(form)
        self._by_plain = {plain: sorted(forms) for plain, forms in by_plain.items()}
        self._short_plains, self._pieces = [], defaultdict[bytes, list[bytes]](list)
        for plain in by_plain:
            if len(plain) < 2 * _PIECE - 1:
                self._short_plains.append(plain)
            else:  # it has one of these where a multiple of eight bytes ends
                for at in range(_PIECE):
                    self._pieces[plain[at : at + _PIECE]].append(plain)
        forms = {form for group in by_plain.values() for form in group}
        #: Length of the longest form, 0 if there is none.
        self.max_length = max(map(len, forms), default=0)
        self._beginnings = {form[:end] for form in forms for end in range(1, min(len(form), 8))}
        self._short_forms = defaultdict[bytes, list[bytes]](list)
        for form in forms:
            if len(form) <= _SHORT_FORM:
                self._short_forms[form[:_PIECE]].append(form)
        self._long_forms = [form for form in forms if len(form) > _SHORT_FORM]

    def mask(self, block: bytes, masked: bytes | None = None) -> bytes:
        """Replace all occurrences of the forms, including overlapping ones, by asterisks.

        ``masked`` is the block in which some have been replaced already.
        """
        clean = bytearray(block if masked is None else masked)
        for plain in self._find_plains(block):
            for form in self._by_plain[plain]:
                offset = block.find(form)
                while offset >= 0:
                    clean[offset : offset + len(form)] = b"*" * len(form)
                    offset = block.find(form, offset + 1)
        return bytes(clean)

    def _find_plains(self, block: bytes) -> set[bytes]:
        """Return the plain texts that a block has or may have."""
        found = {plain for plain in self._short_plains if plain in block}
        if self._pieces:
            seen = {block[at : at + _PIECE] for at in range(0, len(block), _PIECE)}
            found.update(
                plain for piece in seen & self._pieces.keys() for plain in self._pieces[piece]
            )
        return found

    def find_begun(self, raw: bytes) -> int:
        """Return the length of the longest end of a text that is the beginning of a form."""
        ends = range(1, min(_PIECE, len(raw) + 1))  # raw[-9:] of a shorter text is the whole text
        longest = max((end for end in ends if raw[-end:] in self._beginnings), default=0)
        for form in self._long_forms:
            longest = max(longest, _count_begun(raw, form))
        for at in range(max(0, len(raw) - _SHORT_FORM), len(raw) - max(longest, _PIECE - 1)):
            for form in self._short_forms.get(raw[at : at + _PIECE], ()):
                if len(form) > len(raw) - at and form.startswith(raw[at:]):
                    return len(raw) - at
        return longest


def _count_begun(raw: bytes, form: bytes) -> int:
    """Return the length of the end of a text that is the beginning of a long form, or 0."""
    at = raw.find(form[:_PIECE], max(0, len(raw) - len(form) + 1))
    while at >= 0:
        if form.startswith(raw[at:]):
            return len(raw) - at
        at = raw.find(form[:_PIECE], at + 1)
    return 0


def _redact_log(log: Path, forms: _SecretForms) -> None:
    overlap = forms.max_length - 1
    size = max(_BLOCK_BYTES, 2 * overlap)
    with log.open("r+b") as opened:
        offset = 0
        while len(block := _read_at(opened, offset, size)) > (overlap if offset else 0):
            clean = forms.mask(block)
            if clean != block:
                opened.seek(offset)
                opened.write(clean)
            offset += max(1, len(block) - overlap)


def _redact_notebook(notebook: Path, forms: _SecretForms) -> bool:
    """Mask only the texts of a notebook; return False if it cannot be read as JSON."""
    try:
        document = json.loads(notebook.read_bytes())
        clean = _redact_value(document, forms, _NOTEBOOK_KEYS)
        if clean == document:
            return True
        text = json.dumps(clean, ensure_ascii=False, indent=1) + "\n"
        raw = text.encode(errors="surrogatepass")
    except (ValueError, RecursionError):  # each of these steps has another limit of nesting
        return False
    path = notebook.resolve()
    draft = path.with_name(f".{path.name}.draft")
    draft.touch(mode=0o600)
    draft.write_bytes(raw)
    shutil.copymode(path, draft)
    draft.replace(path)
    return True


def _redact_value(value: Any, forms: _SecretForms, known: Mapping[str, Any]) -> Any:
    """Mask a part of a notebook; ``known`` are the keys of nbformat there, which remain."""
    if isinstance(value, str):
        return _mask_text(value, forms)
    if isinstance(value, list):
        return [_redact_value(item, forms, known) for item in value]
    if isinstance(value, dict):
        return {
            key if key in known else _mask_text(key, forms): item
            if any(known is keys and key == name for keys, name in _FIXED_KEYS)
            else _redact_value(item, forms, known.get(key, _NO_KEYS))
            for key, item in value.items()
        }
    return value


def _mask_text(text: str, forms: _SecretForms) -> str:
    raw = text.encode(errors="surrogatepass")
    clean = forms.mask(raw)
    if clean == raw:
        return text
    try:
        return clean.decode(errors="surrogatepass")
    except UnicodeDecodeError:  # a secret that is no text began or ended within a character
        return clean.decode(errors="replace")


def _find_forms(value: str) -> Iterable[tuple[bytes, bytes]]:
    """Yield each form in which output may show a secret, after the plain text that it has."""
    for text in {value, *(line.strip() for line in value.splitlines())}:
        forms = _literal_forms(text)
        if text == value:
            forms |= _url_forms(value)
        plain = _encode(max(_PLAIN.findall(text), key=len, default=""))
        for form in map(_encode, forms):
            yield (plain if plain and plain in form else form), form
    for form in map(_encode, _base64_forms(value)):
        yield form, form


def _literal_forms(value: str) -> set[str]:
    """Return a value as programs quote or escape it in other text."""
    if _PLAIN.fullmatch(value):
        return {value}
    return {
        value, repr(value)[1:-1], ascii(value)[1:-1], repr(_encode(value))[2:-1],
        value.replace("'", "''"), value.replace('"', '""'),
    } | _shell_forms(value) | _json_forms(value) | _html_forms(value)  # fmt: skip


def _shell_forms(value: str) -> set[str]:
    """Return a value as bash, dash and ``shlex`` quote it."""
    ansi = value.translate(_CONTROL_CHARACTERS)
    octal = "".join(chr(each) if each < 128 else f"\\{each:o}" for each in _encode(ansi))
    return {
        value.replace("'", "'\\''"), value.replace("'", "'\"'\"'"),
        re.sub("'+", lambda found: f"'\"{found[0]}\"'", value),
        re.sub(r'[$`"\\]', r"\\\g<0>", value), _BASH_CHARACTERS.sub(r"\\\g<0>", value), ansi, octal,
    }  # fmt: skip


def _json_forms(value: str) -> set[str]:
    """Return a value in JSON, as libraries of several languages write it, and in YAML."""
    forms = set()
    for text in {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}:
        forms.add(text.replace("/", "\\/"))
        for characters in _JSON_CHARACTERS:
            codes = {ord(each): f"\\u{ord(each):04x}" for each in characters}
            forms.add(text.translate(codes))
        upper = re.sub(r"\\u[0-9a-f]{4}", _upper_code, text)
        net = upper.replace('\\"', "\\u0022").translate(
            {ord(each): f"\\u{ord(each):04X}" for each in _JSON_CHARACTERS[-1]}
        )
        forms |= {upper, net, re.sub(r"\\u00(?=[0-9A-F]{2})", r"\\x", upper)}
    return forms


def _upper_code(found: re.Match[str]) -> str:
    return f"\\u{found[0][2:].upper()}"


def _html_forms(value: str) -> set[str]:
    """Return a value in HTML or XML, each with other names of the quotes."""
    text = html.escape(value, quote=False)
    return {
        text.replace('"', quotes).replace("'", apostrophe)
        for quotes in _QUOTES
        for apostrophe in _APOSTROPHES
    }


def _url_forms(value: str) -> set[str]:
    """Return a value in URLs and forms, with hexadecimal numbers in either case."""
    text = _encode(value)
    forms = {quote(text, safe=safe) for safe in _URL_CHARACTERS} | {quote_plus(text)}
    forms |= {quote_plus(text, safe="*").replace("~", "%7E")}
    return forms | {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), each) for each in forms}


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
