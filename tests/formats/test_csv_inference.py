"""The search for hexadecimal numbers in CSV finds them wherever they are."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from hyperplane.formats.csv import inference


@given(st.binary(max_size=40) | st.text("0xX1Pp\x10", max_size=40).map(str.encode))
def test_the_search_by_blocks_finds_what_a_search_of_two_bytes_finds(data: bytes) -> None:
    expected = b"0x" in data or b"0X" in data
    for block in (1, 2, 5, 8, 64):
        with mock.patch.object(inference, "_BLOCK", block):
            assert inference.may_be_hexadecimal(data) is expected, block
