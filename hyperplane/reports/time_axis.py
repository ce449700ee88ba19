"""Pictures over the time of a run: sizes, the axis of the time, and texts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hyperplane.core.units import format_duration
from hyperplane.reports.page import escape

#: Width of a picture, and of the labels and the margin at its sides.
WIDTH, LEFT, RIGHT = 900, 190, 20
#: Steps between the marks of the axis, in seconds; longer ones are whole days.
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
#: Most marks, and most letters of a label.
_MARKS, _LETTERS = 7, 27


@dataclass(frozen=True)
class TimeAxis:
    """Axis from the start of a timeline.

    Parameters
    ----------
    seconds : float
        Length of the time.
    """

    seconds: float

    def place(self, seconds: float) -> float:
        """Return the horizontal place of a time; of later ones the end of the axis."""
        share = min(1.0, max(0.0, seconds / self.seconds)) if self.seconds > 0 else 0.0
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def draw(self, top: float, bottom: float) -> list[str]:
        """Return vertical lines with their times below."""
        fitting = (each for each in _STEPS if self.seconds / each <= _MARKS)
        step = next(fitting, 86400.0 * math.ceil(self.seconds / 86400 / _MARKS))
        parts = []
        for number in range(int(self.seconds / step) + 1):
            x = self.place(number * step)
            parts.append(f'<path class="axis" d="M{x:.1f} {top:g}V{bottom:g}"/>')
            name = format_duration(number * step) if number else "0"
            parts.append(draw_text(x, bottom + 14, name, "middle"))
        return parts


def draw_text(x: float, y: float, text: str, anchor: str = "start") -> str:
    """Return a text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def draw_label(y: float, text: str) -> str:
    """Return the label of a row, shortened; the whole text is shown under the pointer."""
    short = text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
    return f"<g><title>{escape(text)}</title>{draw_text(LEFT - 8, y, short, 'end')}</g>"


def picture(title: str, height: float, parts: list[str]) -> str:
    """Return an SVG with a title for readers who do not see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
