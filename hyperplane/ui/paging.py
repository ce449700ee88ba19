"""Pages of a long list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hyperplane.core.html_output import Markup, escape

_Item = TypeVar("_Item")
#: Largest number of a page; lists are read from their start.
_LAST = 10_000


@dataclass(frozen=True)
class Paging:
    """One page of a list.

    Parameters
    ----------
    number : int
        Number of the page, from 1.
    size : int
        Number of items of a page.
    """

    number: int
    size: int

    @classmethod
    def read(cls, text: str, size: int) -> Paging:
        """Return the page of an argument; the first one if that is no number.

        Examples
        --------
        >>> Paging.read("2", 100).number, Paging.read("x", 100).number
        (2, 1)
        """
        is_number = text.isascii() and text.isdecimal() and len(text) < 6
        return cls(min(_LAST, max(1, int(text))) if is_number else 1, size)

    @property
    def limit(self) -> int:
        """Number of items to read: those up to this page, and one to see that there are more."""
        return self.number * self.size + 1

    def select(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """Return the items of this page."""
        return items[(self.number - 1) * self.size : self.number * self.size]

    def describe(self, noun: str, count: int) -> str:
        """Return the caption of the list.

        Examples
        --------
        >>> Paging(2, 100).describe("jobs", 7)
        'jobs 101 to 107, the newest first'
        """
        first = (self.number - 1) * self.size
        return f"{noun} {first + 1} to {first + count}, the newest first" if count else noun

    def make_links(self, found: int, make_path: Callable[[str], str]) -> Markup:
        """Return links to the pages before and after this one; ``found`` is of :attr:`limit`."""
        links = []
        if self.number > 1:
            links.append((str(self.number - 1), "prev", "Newer"))
        if found >= self.limit:
            links.append((str(self.number + 1), "next", "Older"))
        items = "".join(
            f'<li><a href="{escape(make_path(page))}" rel="{relation}">{text}</a></li>'
            for page, relation, text in links
        )
        nav = f'<nav id="pages" aria-label="Pages of the list"><ul class="pages">{items}</ul></nav>'
        return Markup(nav if items else "")
