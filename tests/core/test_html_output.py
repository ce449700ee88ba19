"""HTML of results: escaped, well-formed, without scripts and links to code."""

from __future__ import annotations

import pytest
from html_pages import read_page
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.core.html_output import (
    Markup,
    escape,
    make_bar,
    make_chip,
    make_file_link,
    make_link,
    make_output,
    make_rows,
    make_table,
)

NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\x1b[31m\x00"
ANY_TEXT = st.text(st.characters(), max_size=20)


@given(ANY_TEXT, ANY_TEXT)
def test_any_text_is_well_formed_in_every_piece(text, other):
    page = read_page(
        make_output(
            make_rows([(text, other), ("warning", text)]),
            make_table([text], [[other, make_chip(text, "hp-bad")]]),
            Markup(f"<p>{make_bar(0.5, text)}{make_link(text, other)}</p>"),
            Markup(f"<p>{make_file_link(text, other)}{make_file_link(f'/{text}', other)}</p>"),
        )
    )
    assert all(address.startswith("file:///") for address in page.links.values())


def test_text_cannot_add_elements_or_attributes():
    page = read_page(make_output(make_rows([(NASTY, NASTY)]), make_table([NASTY], [[NASTY]])))
    assert not {"script", "img"} & set(page.tags)
    shown = NASTY.replace("\x1b", "\ufffd").replace("\x00", "\ufffd")
    assert page.cells == [shown] * 4


def test_text_that_would_be_shown_in_another_direction_or_is_no_character_is_replaced():
    assert escape("a\u202eb\ud800c\r\nd") == "a\ufffdb\ufffdc\nd"


def test_markup_is_inserted_as_it_is():
    assert escape(Markup("<b>")) == "<b>"
    assert escape(f"{Markup('<b>')}") == "&lt;b&gt;", "a text made from markup is text again"


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "JaVaScript:alert(1)", "data:text/html,x", "http://[", "s3://a/b",
     " javascript:alert(1)", "java\nscript:alert(1)", "http://a/\x00", "vbscript:x"],
)  # fmt: skip
def test_only_addresses_of_the_web_are_links(address):
    assert read_page(make_output(make_link(address))).links == {}


def test_addresses_of_the_web_open_without_access_to_the_notebook():
    text = make_link("https://dask.example/status?a=1&b=2", "dashboard")
    assert 'href="https://dask.example/status?a=1&amp;b=2"' in text
    assert 'rel="noopener noreferrer"' in text


def test_files_are_links_relative_to_the_folder_of_the_notebook(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    cases = {
        folder / "out" / "a b.ipynb": "out/a%20b.ipynb",
        folder / "javascript:alert(1)": "javascript%3Aalert%281%29",
        f"{folder}///host.example/x": "host.example/x",
        tmp_path / "work2" / "a?.log": f"file://{tmp_path}/work2/a%3F.log",
        tmp_path / "\udcff#": f"file://{tmp_path}/%FF%23",
    }
    for path, address in cases.items():
        assert f'href="{address}"' in make_file_link(path)
    assert make_file_link("javascript:alert(1)") == "javascript:alert(1)"


def test_a_folder_that_was_removed_does_not_prevent_an_output(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert 'href="file:///a"' in make_file_link("/a")


def test_bars_stay_within_their_width():
    assert "left:0.0%;width:100.0%" in make_bar(7.0, "")
    assert "left:0.0%;width:0.0%" in make_bar(-1.0, "")
    assert "left:20.0%;width:30.0%" in make_bar(0.5, "", start=0.2)
    assert 'style="left:100.0%"' in make_bar(0.5, "", mark=3.0)


def test_an_output_has_colors_for_both_themes_and_those_of_the_page_come_last():
    text = make_output()
    dark = text.index("prefers-color-scheme:dark")
    for chosen in ('[data-jp-theme-light="true"]', '[data-jp-theme-light="false"]'):
        assert dark < text.index(chosen)
    assert len(text) < 4000
