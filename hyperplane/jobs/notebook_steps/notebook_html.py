"""A notebook as HTML without scripts: sources, texts and pictures of its outputs, errors.

HTML and JavaScript of outputs are not inserted; outputs such as dataframes have a text, too, which
is shown. Everything else is escaped, so that no content of a notebook can run in a page.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hyperplane.core.html_output import Markup, escape
from hyperplane.core.units import plural

#: Most cells, and outputs of a cell.
_MOST_CELLS, _MOST_OUTPUTS = 200, 100
#: Most characters of a cell or output, of all of them, and of all pictures in base64.
_TEXT_LENGTH, _ALL_TEXT, _PICTURE_BYTES = 10_000, 1_000_000, 3_000_000
#: Media types of pictures that are shown; their data has no scripts.
_PICTURES = ("image/png", "image/jpeg", "image/gif")
_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def render_notebook(document: Mapping[str, Any]) -> Markup:
    """Return the cells of a notebook with their outputs."""
    cells = document.get("cells")
    listed = cells if isinstance(cells, list) else []
    renderer = _Renderer()
    parts = []
    count = 0
    for cell in listed[:_MOST_CELLS]:
        if renderer.is_full:
            break
        count += 1
        if isinstance(cell, dict):
            parts.append(renderer.render_cell(cell))
    if len(listed) > count:
        parts.append(_note(f"and {plural(len(listed) - count, 'more cell')}"))
    return Markup("".join(parts))


class _Renderer:
    """Renders cells until their texts have the largest length."""

    def __init__(self) -> None:
        self._bytes = self._length = 0

    @property
    def is_full(self) -> bool:
        """Whether the texts have the largest length."""
        return self._length >= _ALL_TEXT

    def render_cell(self, cell: Mapping[str, Any]) -> str:
        """Return a cell with its outputs."""
        source = _join(cell.get("source"))
        kind = cell.get("cell_type")
        if kind != "code":
            return f'<div class="hp-text">{self._pre(source)}</div>' if source else ""
        count = cell.get("execution_count")
        label = f"In [{count}]:" if isinstance(count, int) else "In [ ]:"
        shown = "".join(self._render_outputs(cell.get("outputs")))
        return f'<div class="hp-cell">{_note(label)}{self._pre(source)}{shown}</div>'

    def _render_outputs(self, outputs: Any) -> Iterator[str]:
        listed = outputs if isinstance(outputs, list) else []
        for number, output in enumerate(listed):
            if self.is_full or number == _MOST_OUTPUTS:
                yield _note(f"and {plural(len(listed) - number, 'more output')}")
                return
            if isinstance(output, dict):
                yield self._render_output(output)

    def _render_output(self, output: Mapping[str, Any]) -> str:
        kind = output.get("output_type")
        if kind == "stream":
            return self._pre(_join(output.get("text")))
        if kind == "error":
            return self._pre(_join(output.get("traceback"), "\n"))
        data = output.get("data")
        if not isinstance(data, dict):
            return ""
        return "".join(self._render_pictures(data)) or self._pre(_join(data.get("text/plain")))

    def _pre(self, text: str) -> str:
        self._length += len(text)
        return f"<pre>{escape(_COLORS.sub('', text))}</pre>" if text else ""

    def _render_pictures(self, data: Mapping[str, Any]) -> Iterator[str]:
        for media_type in _PICTURES:
            encoded = _join(data.get(media_type), limit=None)
            if not encoded:
                continue
            if self._bytes + len(encoded) > _PICTURE_BYTES:
                yield _note("a picture is left out, as the pictures are large")
                return
            try:
                content = base64.b64decode(encoded)
            except ValueError:
                continue
            self._bytes += len(encoded)
            if content:
                yield make_picture(content, media_type, "picture of an output")
                return


def make_picture(content: bytes, media_type: str, text: str) -> Markup:
    """Return a picture that is part of the page; ``text`` describes it for screen readers."""
    data = base64.b64encode(content).decode()
    source = f"data:{escape(media_type)};base64,{data}"
    return Markup(f'<img class="hp-picture" src="{source}" alt="{escape(text)}"/>')


def _note(text: str) -> str:
    return f'<div class="note">{escape(text)}</div>'


def _join(value: Any, separator: str = "", limit: int | None = _TEXT_LENGTH) -> str:
    """Return a text of a notebook, which may be a list of texts."""
    parts = value if isinstance(value, list) else [value]
    text = separator.join(part for part in parts if isinstance(part, str))
    return text if limit is None or len(text) <= limit else f"{text[:limit]}…"
