"""Widths of texts, compared with those of a font."""

from __future__ import annotations

import string
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.core.text_widths import elide_middle, measure_text

SIZE = 11.0


@cache
def open_font(bold: bool) -> Any:
    font_manager = pytest.importorskip("matplotlib.font_manager")
    from matplotlib.ft2font import FT2Font

    weight = "bold" if bold else "normal"
    properties = font_manager.FontProperties(family="DejaVu Sans", weight=weight)
    font = FT2Font(font_manager.findfont(properties))
    font.set_size(1000, 72)
    return font


def true_width(text: str, bold: bool) -> float:
    """Return the width of a text in DejaVu Sans."""
    font = open_font(bold)
    widths = [font.load_char(ord(each)).linearHoriAdvance / 65536 for each in text]
    return sum(widths) * SIZE / 1000


@pytest.mark.parametrize("bold", [False, True])
@pytest.mark.parametrize("character", sorted({*string.printable} - {*string.whitespace} | {" "}))
def test_no_character_is_wider_than_its_estimate_and_few_are_much_narrower(
    character: str, bold: bool
) -> None:
    estimate = measure_text(character, SIZE, bold=bold)
    assert true_width(character, bold) <= estimate + 0.06
    assert estimate <= true_width(character, bold) * 1.25 + 0.5


@given(text=st.text(alphabet=string.ascii_letters + string.digits + " _-.é日", max_size=60))
@pytest.mark.parametrize("bold", [False, True])
def test_texts_fit_and_keep_both_ends(bold: bool, text: str) -> None:
    shown = elide_middle(text, 100, SIZE, bold=bold)
    assert measure_text(shown, SIZE, bold=bold) <= 100
    if shown == text:
        return
    begin, ellipsis, end = shown.partition("…")
    assert ellipsis
    assert text.startswith(begin)
    assert text.endswith(end)
    assert measure_text(shown, SIZE, bold=bold) > 60 or " " in text


def test_a_mark_on_a_letter_has_no_width() -> None:
    assert measure_text("e\u0301\u200b", SIZE) == measure_text("e", SIZE)
