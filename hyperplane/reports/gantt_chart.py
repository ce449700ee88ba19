"""Gantt chart of the operations of a run: a bar from the first start to the last end of a group."""

from __future__ import annotations

from collections.abc import Sequence

from hyperplane.core.units import format_duration, format_number, plural
from hyperplane.history.timeline import TaskGroupTimes
from hyperplane.reports.page import escape
from hyperplane.reports.time_axis import TimeAxis, draw_label, picture

#: Most operations that are drawn, those with the most time.
MOST_ROWS = 60
_TOP, _ROW, _BOTTOM = 6, 18, 24


def draw_gantt(groups: Sequence[TaskGroupTimes], axis: TimeAxis, noun: str = "task") -> str:
    """Return one row for each operation, in the order of the first starts; a bar has ``noun``s."""
    rows: dict[str, list[TaskGroupTimes]] = {}
    for group in sorted(groups, key=lambda group: group.started):
        rows.setdefault(group.name, []).append(group)
    longest = sorted(rows, key=lambda name: -sum(group.seconds for group in rows[name]))
    shown = set(longest[:MOST_ROWS])
    names = [name for name in rows if name in shown]
    height = _TOP + len(names) * _ROW + _BOTTOM
    parts = axis.draw(_TOP, height - _BOTTOM)
    for number, name in enumerate(names):
        y = _TOP + number * _ROW
        parts.append(draw_label(y + 13, name))
        parts += [_draw_bar(group, y, axis, noun) for group in rows[name]]
    return picture("Times of operations and steps", height, parts)


def _draw_bar(group: TaskGroupTimes, y: float, axis: TimeAxis, noun: str) -> str:
    x = axis.place(group.started)
    width = max(1.5, axis.place(group.ended) - x)
    failed = f", {format_number(group.failed)} failed" if group.failed else ""
    text = (
        f"{group.name}: {plural(group.count, noun)}{failed}, from "
        f"{format_duration(group.started)} to {format_duration(group.ended)}, "
        f"{format_duration(group.seconds)} of {noun}s"
    )
    place = f'x="{x:.1f}" width="{width:.1f}"'
    bar = f'<rect class="bar" {place} y="{y + 3:g}" height="{_ROW - 5}"/>'
    if group.failed:
        bar += f'<rect class="failed" {place} y="{y + _ROW - 5:g}" height="3"/>'
    return f"<g><title>{escape(text)}</title>{bar}</g>"
