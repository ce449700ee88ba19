"""Read the HTML of results strictly, as a browser that refuses what is not well-formed would."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

#: Elements and attributes that results use; scripts, frames and forms are not among them.
TAGS = {
    "div", "style", "table", "thead", "tbody", "tr", "th", "td", "span", "b", "a", "br", "pre", "p",
    "details", "summary", "img", "svg", "g", "rect", "path", "polyline", "text", "circle", "title",
}  # fmt: skip
ATTRIBUTES = {
    "class", "style", "href", "src", "alt", "target", "rel", "open", "role", "width", "height",
    "viewBox", "rx", "transform", "d", "x", "y", "r", "cx", "cy", "fill", "stroke", "opacity",
    "points", "text-anchor", "font-weight", "font-family", "font-size", "stroke-width",
    "aria-label",
}  # fmt: skip


@dataclass
class Page:
    """Elements of a page in their order."""

    tags: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    text: str = ""


def read_page(source: str) -> Page:
    """Return what a page has; fail on what is not well-formed, and on unexpected elements."""
    page, texts = Page(), []
    for element in ET.fromstring(source).iter():
        tag = element.tag.removeprefix("{http://www.w3.org/2000/svg}")
        assert tag in TAGS
        assert set(element.attrib) <= ATTRIBUTES
        assert element.get("src", "data:image/").startswith("data:image/")
        page.tags.append(tag)
        page.classes += element.get("class", "").split()
        content = "".join(element.itertext())
        if tag == "style":
            assert "url(" not in content
            assert "@import" not in content
        elif tag in ("th", "td"):
            page.cells.append(content)
        elif tag == "tr":
            cells = [cell for cell in element if cell.tag in ("th", "td")]
            if len(cells) == 2:
                label, text = ("".join(cell.itertext()) for cell in cells)
                page.rows.setdefault(label, text)
        elif tag == "a":
            page.links[content] = element.attrib["href"]
        if tag != "style":
            texts.append(element.text or "")
        texts.append(element.tail or "")
    page.text = "\n".join(filter(None, texts))
    return page
