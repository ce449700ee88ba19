"""Text files with one item of a bag per line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyperplane.formats.base import EncodedFile


class TextFormat:
    """Lines of text, one for each item of a bag."""

    name = "text"
    suffixes: tuple[str, ...] = ()
    saved_suffixes = (".txt", ".md", ".html", ".yaml", ".yml")

    def encode_records(self, items: Sequence[Any]) -> EncodedFile:
        """Return items, which must be strings without line breaks, as lines."""
        from hyperplane.formats.records import encode_lines

        return EncodedFile(encode_lines(items, _format_line), len(items))

    def decode_records(self, data: bytes) -> list[str]:
        """Return the lines of a file."""
        # Not splitlines, which also splits at other separators.
        return data.decode().split("\n")[:-1]


def _format_line(item: Any, number: int) -> str:
    """Return an item if it is one line of text, or raise."""
    from hyperplane.formats.json_values import check_unicode
    from hyperplane.formats.records import make_item_error

    if not isinstance(item, str):
        message = "lines of text must be strings; save it as jsonl, or map(str)"
        raise make_item_error("item", item, number, message)
    if "\n" in item:
        message = "it contains a line break and would be loaded as two items; save it as jsonl"
        raise make_item_error("item", item, number, message)
    return check_unicode(item)
