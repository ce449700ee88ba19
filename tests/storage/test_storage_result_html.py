"""The result of a save as HTML."""

from __future__ import annotations

from html_pages import read_page

from hyperplane.storage.result import SaveResult

NASTY = "/data/<b>&\"'.parquet"


def test_html_has_all_rows_a_link_and_the_share_of_files_that_were_written():
    result = SaveResult(NASTY, 8, 1000, 10**9, written=2, seconds=1.5, complete=False)
    page = read_page(result._repr_html_())
    assert all(text in page.cells for row in result.as_rows() for text in row)
    assert page.links == {NASTY: "file:///data/%3Cb%3E%26%22%27.parquet"}
    assert 'width:25.0%"' in result._repr_html_()


def test_an_output_in_an_object_store_is_text_and_an_unchanged_one_has_no_bar():
    page = read_page(SaveResult("s3://bucket/a", 8, None, 10)._repr_html_())
    assert page.rows["saved"] == "s3://bucket/a"
    assert page.links == {}
    assert "hp-bar" not in page.classes
