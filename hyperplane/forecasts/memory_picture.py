"""Picture of the memory of worker processes over a simulated run, as SVG for light and dark pages.

One band for each process, all with the same scale, with the memory limit and the spill threshold as
lines.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hyperplane.core.html_output import make_theme_style
from hyperplane.core.units import plural, round_bytes
from hyperplane.forecasts.memory_series import MemorySeries

#: Most processes that are drawn, those with the largest memory.
MOST = 8
#: Ratio of a limit to the largest memory up to which its line is in the bands; a higher limit would
#: leave only a thin strip for the memory.
FARTHEST_LIMIT = 4.0
_WIDTH, _LEFT, _RIGHT = 640, 84, 16
_TOP, _BAND, _GAP, _BOTTOM = 62, 44, 12, 42
#: Colors of light and of dark pages; text and axes have the color of the page's text.
_STYLE = (
    ".hp-memory{fill-opacity:.3}.hp-limit,.hp-spill{stroke-width:1.5}"
    ".hp-spill{stroke-dasharray:5 3}"
) + make_theme_style(
    {
        ".hp-memory": "fill:#2a6f97;stroke:#2a6f97",
        ".hp-limit": "stroke:#c1121f",
        ".hp-spill": "stroke:#9a5b00",
    },
    {
        ".hp-memory": "fill:#6bb5e0;stroke:#6bb5e0",
        ".hp-limit": "stroke:#ff6b6b",
        ".hp-spill": "stroke:#f0b354",
    },
)


@dataclass(frozen=True)
class MemoryLine:
    """A memory of each process that is drawn as a line: a name, a style, and bytes."""

    name: str
    style: str
    size: float


def draw_memory(series: MemorySeries, limit: float, spill: float, layout: str) -> str:
    """Return the memory of each process over the time.

    Parameters
    ----------
    series : MemorySeries
        Memory of all processes.
    limit : float
        Memory limit of a process in bytes; 0 for none.
    spill : float
        Bytes from which on results are written to disk; 0 if they are not.
    layout : str
        Processes and threads, for the title.
    """
    largest = max(series.peaks)
    lines = [
        *([MemoryLine("memory limit", "hp-limit", limit)] if limit else []),
        *([MemoryLine("results are written to disk", "hp-spill", spill)] if spill else []),
    ]
    drawn = [line for line in lines if line.size <= FARTHEST_LIMIT * largest]
    top = 1.05 * max(largest, *(line.size for line in drawn), 0.0)
    shown = _choose(series.peaks)
    height = _TOP + len(shown) * (_BAND + _GAP) + _BOTTOM
    title = f"Memory over the simulated run in {layout}"
    if len(shown) < len(series.processes):
        title += f": the {len(shown)} largest of {plural(len(series.processes), 'process')}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'style="max-width:{_WIDTH}px;color:inherit" font-family="sans-serif" font-size="11">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
        _text(_LEFT, 16, title, "start", 'font-weight="bold"'),
        *_draw_legend(lines, drawn),
    ]
    for place, process in enumerate(shown):
        base = _TOP + place * (_BAND + _GAP) + _BAND
        parts += _draw_band(series, process, base, top, drawn)
    parts += _draw_axis(series.seconds, height - _BOTTOM)
    return "".join([*parts, "</svg>"])


def _choose(peaks: Sequence[float]) -> list[int]:
    """Return the numbers of the processes with the largest memory, in their order."""
    return sorted(sorted(range(len(peaks)), key=lambda each: -peaks[each])[:MOST])


def _draw_legend(lines: Sequence[MemoryLine], drawn: Sequence[MemoryLine]) -> list[str]:
    """Return the names of what is drawn; a limit far above the memory has a text only."""
    parts = [f'<rect class="hp-memory" x="{_LEFT}" y="29" width="18" height="9"/>']
    x = _LEFT + 24
    parts.append(_text(x, 38, "memory", "start"))
    x += 60
    for line in lines:
        text = f"{line.name}: {round_bytes(round(line.size))}"
        if line in drawn:
            parts.append(f'<path class="{line.style}" d="M{x} 34h18" fill="none"/>')
            x += 24
        else:
            text += " (above the bands)"
        parts.append(_text(x, 38, text, "start"))
        x += round(5.8 * len(text)) + 14
    return parts


def _draw_band(
    series: MemorySeries, process: int, base: int, top: float, lines: Sequence[MemoryLine]
) -> list[str]:
    values = series.processes[process]
    width = (_WIDTH - _LEFT - _RIGHT) / len(values)
    points = [f"M{_LEFT} {base}"]
    for number, value in enumerate(values):
        points.append(f"V{base - _BAND * value / top:.2f}H{_LEFT + width * (number + 1):.2f}")
    peak = round_bytes(round(series.peaks[process]))
    name = f"process {process + 1}"
    right = _WIDTH - _RIGHT
    return [
        f'<g class="hp-band"><title>{name}: up to {peak}</title>',
        f'<path class="hp-memory" d="{"".join(points)}V{base}Z"/>',
        f'<path d="M{_LEFT} {base}H{right}" fill="none" stroke="currentColor" opacity=".5"/>',
        *(
            f'<path class="{line.style}" d="M{_LEFT} {base - _BAND * line.size / top:.2f}H{right}" '
            'fill="none"/>'
            for line in lines
        ),
        _text(_LEFT - 8, base - 22, name, "end"),
        _text(_LEFT - 8, base - 8, peak, "end"),
        "</g>",
    ]


def _draw_axis(seconds: float, y: int) -> list[str]:
    step = 10.0 ** math.floor(math.log10(max(seconds, 1e-6)))
    step = next(each for each in (step / 5, step / 2, step, 2 * step) if seconds / each <= 6)
    ticks = [number * step for number in range(math.floor(seconds / step) + 1)]
    width = _WIDTH - _LEFT - _RIGHT
    return [
        *(
            _text(_LEFT + width * tick / max(seconds, 1e-6), y + 12, f"{tick:.6g}", "middle")
            for tick in ticks
        ),
        _text(_LEFT + width / 2, y + 30, "time of the tasks (s)", "middle"),
    ]


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" {more}>'
        f"{html.escape(text)}</text>"
    )
