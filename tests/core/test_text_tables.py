"""Labeled rows for terminals and notebooks."""

import io
import sys

import pytest
from html_pages import read_page
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.core.text_tables import as_html, as_text

TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=12)
ROWS = st.lists(st.tuples(TEXTS, TEXTS), max_size=5)


def test_the_second_column_is_aligned():
    text = as_text([("data", "100 GB"), ("memory", "800 GB"), ("", "more")])
    assert text == "data    100 GB\nmemory  800 GB\n        more"


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self):
        """Return that it is."""
        return True


@pytest.mark.parametrize("output", ["terminal", "closed", "none", "bare"])
def test_text_does_not_depend_on_standard_output(output, monkeypatch):
    rows = [("memory", "8 x 100 GB"), ("why", "one two " * 20), ("why", "a\nb"), ("", "")]
    expected = f"memory  8 x 100 GB\nwhy     {'one two ' * 20}\nwhy     a\nb\n        "
    stream = {"terminal": Terminal(), "closed": Terminal(), "none": None, "bare": object()}[output]
    if output == "closed":
        stream.close()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", stream)
    assert as_text(rows) == expected


def test_without_rows_the_text_is_empty():
    assert as_text([]) == ""
    assert read_page(as_html([])).text == ""


def test_rows_may_come_from_a_generator():
    rows = [("a", "1"), ("bb", "2")]
    assert as_text(row for row in rows) == as_text(rows)
    assert as_html(row for row in rows) == as_html(rows)


def test_html_is_escaped():
    table = as_html([("<script>", "a & b < 'c' > \"d\"")])
    assert "<script>" not in table
    assert "&lt;script&gt;" in table
    assert "a &amp; b &lt;" in table


@given(ROWS)
def test_a_browser_sees_just_the_rows(rows):
    page = read_page(as_html(rows))
    assert page.tags == ["div", "style", "table", *["tr", "th", "td"] * len(rows)]
    assert page.cells == [cell for row in rows for cell in row]
