"""A view: title and content of a page, and the whole page around them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hyperplane.core.errors import HyperplaneError
from hyperplane.core.html_output import Markup, escape
from hyperplane.ui.elements import make_status

#: Paths and names of the pages that each page links to.
_PAGES = {
    "/": "Overview",
    "/clusters": "Clusters",
    "/jobs": "Jobs",
    "/records": "Records",
    "/schedules": "Schedules",
    "/pools": "Pools",
    "/size": "Size a cluster",
}


class PageNotFound(HyperplaneError, LookupError):
    """What a page is about does not exist, or no longer."""


@dataclass(frozen=True)
class PageRequest:
    """What a browser requests.

    Parameters
    ----------
    path : str
        The path of the page.
    names : mapping of str to str
        Parts of the path, such as the id of a job.
    query : starlette.datastructures.QueryParams
        Arguments of the query.
    allow_actions : bool
        Whether the user may stop clusters and cancel jobs.
    """

    path: str
    query: Any
    names: Mapping[str, str] = field(default_factory=dict)
    allow_actions: bool = False


@dataclass(frozen=True)
class View:
    """Title and content of a page.

    Parameters
    ----------
    title : str
        Title and first heading.
    parts : tuple of str
        HTML of the content.
    seconds : float
        Seconds until the content is requested again; 0 for never.
    state : str
        What a screen reader announces when it changes, such as the status of a job.
    code : int
        Status of HTTP.
    outcome : str
        What was done before this page was opened; updates do not repeat it.
    """

    title: str
    parts: tuple[str, ...]
    seconds: float = 0.0
    state: str = ""
    code: int = 200
    outcome: str = ""

    def render_content(self) -> tuple[str, str]:
        """Return the element with the content, and its digest."""
        inner = f"<h1>{escape(self.title)}</h1>{''.join(map(escape, self.parts))}"
        shown = f"{self.seconds} {self.state} {inner}"
        # The name in a damaged record can have a lone surrogate, which escape() replaces.
        digest = hashlib.sha256(shown.encode(errors="replace")).hexdigest()
        content = (
            f'<div id="content" data-seconds="{self.seconds:g}" data-digest="{digest}" '
            f'data-state="{escape(self.state)}">{inner}</div>'
        )
        return content, digest

    def render_page(self, request: PageRequest) -> str:
        """Return the whole page."""
        links = "".join(
            f'<li><a href="{path}"{_mark_current(path, request.path)}>{name}</a></li>'
            for path, name in _PAGES.items()
        )
        refresh = ""
        outcome = make_status(self.outcome) if self.outcome else ""
        if self.seconds:
            is_repeatable = request.query and not self.outcome
            address = request.path + (f"?{request.query}" if is_repeatable else "")
            refresh = (
                f'<p class="refresh"><a id="refresh" href="{escape(address)}">Refresh</a> '
                '<button type="button" id="pause" aria-pressed="false" hidden="">'
                "Pause updates</button> "
                '<span id="announcement" role="status" aria-live="polite"></span></p>'
            )
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
            f"<title>{escape(self.title)} - hyperplane</title>"
            '<link rel="stylesheet" href="/style.css"/>'
            '<link rel="icon" href="data:,"/>'
            '<script src="/live.js" defer=""></script></head>'
            '<body><a class="skip" href="#main">Skip to the content</a>'
            f'<header><nav aria-label="Pages"><ul>{links}</ul></nav></header>'
            f'<main id="main" tabindex="-1" class="hp-out">{refresh}{outcome}'
            f"{self.render_content()[0]}</main></body></html>\n"
        )


def _mark_current(path: str, current: str) -> Markup:
    if path == current:
        return Markup(' aria-current="page"')
    is_below = path != "/" and current.startswith((f"{path}/", f"/other-{path[1:]}"))
    return Markup(' aria-current="true"' if is_below else "")
