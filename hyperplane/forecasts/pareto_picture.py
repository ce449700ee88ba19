"""Picture of the time and the cost of options, as SVG for light and dark pages."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from hyperplane.core.html_output import make_theme_style
from hyperplane.core.units import plural, round_bytes
from hyperplane.forecasts.layout_search import MeasuredOption

_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 20, 46
#: Colors of light and of dark pages; text and axes have the color of the page's text.
_STYLE = make_theme_style(
    {
        ".hp-front": "fill:#2a6f97;stroke:#2a6f97",
        ".hp-other": "fill:#8fa3b0",
        ".hp-chosen": "stroke:#c1121f",
    },
    {
        ".hp-front": "fill:#6bb5e0;stroke:#6bb5e0",
        ".hp-other": "fill:#7d8b94",
        ".hp-chosen": "stroke:#ff6b6b",
    },
)


class LogAxis:
    """Positions of values on a logarithmic axis, and its ticks.

    Parameters
    ----------
    values : sequence of float
        Values that are to be visible; 0, as the price of own nodes, is at the first end.
    first, last : float
        Positions of the ends.
    """

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        above = [value for value in values if value > 0] or [1.0]
        # At least a factor of two, so that a single value is in the middle.
        low, high = min(above) / math.sqrt(2), max(above) * math.sqrt(2)
        self._low, self._high = math.log10(low), math.log10(high)
        self._first, self._last = first, last

    def place(self, value: float) -> float:
        """Return the position of a value."""
        number = math.log10(value) if value > 0 else self._low
        share = (number - self._low) / (self._high - self._low)
        return self._first + share * (self._last - self._first)

    def find_ticks(self) -> list[float]:
        """Return round values on the axis, at most about eight."""
        decades = range(math.floor(self._low), math.ceil(self._high) + 1)
        for steps in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1,)):
            ticks = [step * 10.0**power for power in decades for step in steps]
            inside = [tick for tick in ticks if self._low <= math.log10(tick) <= self._high]
            if len(inside) <= 8:
                break
        return inside[:: -(-len(inside) // 8) or 1]


def draw_options(
    options: Sequence[MeasuredOption],
    chosen: MeasuredOption,
    front: Sequence[MeasuredOption],
    unit: str,
) -> str:
    """Return the options as points of time and cost, with the front as a line.

    Each point has a text with its layout, which browsers show.
    """
    across = LogAxis([each.seconds for each in options], _LEFT, _WIDTH - _RIGHT)
    up = LogAxis([each.cost for each in options], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'style="max-width:{_WIDTH}px;color:inherit" font-family="sans-serif" font-size="11">',
        "<title>Time and cost of the layouts on which the job fits</title>",
        f"<style>{_STYLE}</style>",
        f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" '
        'stroke="currentColor"/>',
        *(
            f'<text x="{across.place(tick):.1f}" y="{_HEIGHT - _BOTTOM + 16}" '
            f'text-anchor="middle" fill="currentColor">{tick:g}</text>'
            for tick in across.find_ticks()
        ),
        *(
            f'<text x="{_LEFT - 6}" y="{up.place(tick) + 4:.1f}" text-anchor="end" '
            f'fill="currentColor">{tick:g}</text>'
            for tick in up.find_ticks()
        ),
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" text-anchor="middle" '
        'fill="currentColor">time of the tasks (s)</text>',
        f'<text transform="translate(14 {(_TOP + _HEIGHT - _BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle" fill="currentColor">{html.escape(unit)}</text>',
    ]
    points = [(across.place(each.seconds), up.place(each.cost), each) for each in options]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, each in sorted(
        (point for point in points if point[2] in front), key=lambda point: point[0]
    ))  # fmt: skip
    parts.append(f'<polyline class="hp-front" points="{line}" style="fill:none"/>')
    for x, y, each in points:
        kind = "hp-front" if each in front else "hp-other"
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4">{_title(each)}</circle>'
        )
        if each is chosen:
            parts.append(
                f'<circle class="hp-chosen" cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" '
                f'stroke-width="2">{_title(each)}</circle>'
            )
            anchor = "end" if x > _WIDTH / 2 else "start"
            shift = -12 if anchor == "end" else 12
            parts.append(
                f'<text x="{x + shift:.1f}" y="{y - 8:.1f}" text-anchor="{anchor}" '
                f'fill="currentColor">{html.escape(_name(each))}</text>'
            )
    return "".join([*parts, "</svg>"])


def _name(option: MeasuredOption) -> str:
    if option.is_local:
        return f"this machine, {option.worker}"
    return f"{plural(option.nodes, 'node')} of {option.pool.name}"


def _title(option: MeasuredOption) -> str:
    text = (
        f"{_name(option)}, {option.worker}: {option.seconds:.3g} s, cost {option.cost:.3g}, up to "
        f"{round_bytes(option.high)} in a process"
    )
    return f"<title>{html.escape(text)}</title>"
