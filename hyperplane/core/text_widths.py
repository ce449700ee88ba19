"""Widths of texts in pictures, which no program of this package draws.

The font of the reader is unknown. The widths are those of DejaVu Sans, the default of most Linux
systems, which is as wide as Verdana and a sixth wider than Arial and Helvetica.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

_ELLIPSIS = "…"
#: Hundredths of the font size, and the characters of ASCII of at most this width.
_REGULAR = {
    34: " '/:;\\|,.IJijl", 42: "!()[]f-tr", 53: '"*_`sz', 61: "?cLFkvxyTPaeo",
    65: "$0123456789ESbdghnpqu{}", 70: "ABKVXZCRY", 79: "UNHDG&OQ", 87: "#+<=>^~wM",
    100: "%m@W",
}  # fmt: skip
_BOLD = {
    38: " 'ijl/\\|,.IJ", 48: ":;-f!()[]t", 53: '_`r"*', 65: "?zcsLx", 70: "vykaeEFTo$0123456789",
    78: "bdghnpqu{}SYZCPBRAKVX", 88: "UDG#+<=>HN^~OQ&", 100: "w@M", 111: "%mW",
}  # fmt: skip
#: Of characters that are as wide as two of a terminal, and of other characters.
_WIDE, _OTHER = 120, 100


class _Font(NamedTuple):
    """Widths of the characters of ASCII."""

    widths: dict[str, int]

    def measure(self, character: str) -> int:
        """Return the width of a character in hundredths of the font size."""
        if character in self.widths:
            return self.widths[character]
        if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn"):
            return 0
        return _WIDE if unicodedata.east_asian_width(character) in "WF" else _OTHER


def _read_font(widths: dict[int, str]) -> _Font:
    return _Font({character: width for width, those in widths.items() for character in those})


_FONTS = {False: _read_font(_REGULAR), True: _read_font(_BOLD)}


def measure_text(text: str, size: float, *, bold: bool = False) -> float:
    """Return about the largest width of a text in a font without serifs.

    Examples
    --------
    >>> measure_text("load", 10), measure_text("load", 10, bold=True)
    (22.1, 25.6)
    """
    return sum(map(_FONTS[bold].measure, text)) * size / 100


def elide_middle(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """Return a text that fits into a width, without its middle if it is too long.

    Names of steps that belong together differ at their ends.

    Parameters
    ----------
    text : str
        The text.
    width, size : float
        Largest width, and font size, in the same unit.
    bold : bool
        Whether the font is bold.

    Examples
    --------
    >>> elide_middle("clean", 100, 10), elide_middle("clean the orders of 2026", 100, 10)
    ('clean', 'clean th…of 2026')
    """
    if measure_text(text, size, bold=bold) <= width:
        return text
    measure = _FONTS[bold].measure
    left = width * 100 / size - measure(_ELLIPSIS)
    begin, end = 0, len(text)
    while begin < end:  # the beginning first
        is_begin = begin <= len(text) - end
        left -= measure(text[begin] if is_begin else text[end - 1])
        if left < 0:
            break
        begin, end = (begin + 1, end) if is_begin else (begin, end - 1)
    return f"{text[:begin].rstrip()}{_ELLIPSIS}{text[end:].lstrip()}"
