"""Picture of the memory of workers over the time, with what they lacked and when."""

from __future__ import annotations

from collections.abc import Sequence

from hyperplane.core.units import format_duration, round_bytes
from hyperplane.history.figures import WorkerUsage
from hyperplane.history.run_record import PlanSummary, RunRecord
from hyperplane.history.timeline import RunTimeline, WorkerTimeline
from hyperplane.reports.page import escape
from hyperplane.reports.time_axis import (
    LEFT,
    RIGHT,
    WIDTH,
    TimeAxis,
    draw_label,
    draw_text,
    picture,
)

_TOP, _BAND, _GAP, _BOTTOM = 34, 46, 16, 24
#: Ratio of a limit to the largest memory up to which it and the thresholds are drawn; a higher one
#: would leave only a thin strip for the memory.
_FARTHEST_LIMIT = 4.0


def draw_memory(record: RunRecord, timeline: RunTimeline, axis: TimeAxis) -> str:
    """Return one band for all processes, one for the results on disk, and one for each worker."""
    usages = {usage.name: usage for usage in record.workers}
    bands = [_draw_total("all processes", timeline.total, timeline.part_seconds, axis)]
    if any(timeline.spilled):
        bands.append(_draw_total("results on disk", timeline.spilled, timeline.part_seconds, axis))
    largest = max((max(each.memory, default=0) for each in timeline.workers), default=0)
    for worker in timeline.workers:
        usage = usages.get(worker.name, WorkerUsage(worker.name))
        bands.append(_draw_worker(worker, usage, record.plan, timeline.part_seconds, largest, axis))
    height = _TOP + len(bands) * (_BAND + _GAP) + _BOTTOM
    parts = [*_draw_legend(), *axis.draw(_TOP, height - _BOTTOM)]
    for number, band in enumerate(bands):
        base = _TOP + number * (_BAND + _GAP) + _GAP + _BAND
        parts.append(f'<g transform="translate(0 {base})">{band}</g>')
    return picture("Memory of worker processes over the time", height, parts)


def _draw_legend() -> list[str]:
    parts: list[str] = []
    x = 0.0
    for mark, name in (
        ('<rect class="data" y="4" width="18" height="9"/>', "memory"),
        ('<path class="limit" d="M0 9h18"/>', "limit"),
        ('<path class="spill" d="M0 9h18"/>', "results go to disk"),
        ('<path class="pause" d="M0 9h18"/>', "paused above"),
        ('<rect class="paused" y="2" width="18" height="13"/>', "was paused"),
        ('<rect class="disk" y="7" width="18" height="4"/>', "had results on disk"),
        ('<path class="killed" d="M9 2V15"/>', "ended for lack of memory"),
        ('<path class="restart" d="M9 4V14"/>', "restarted"),
    ):
        parts.append(f'<g transform="translate({x:g} 0)">{mark}{draw_text(24, 13, name)}</g>')
        x += 42 + 5.6 * len(name)
    return parts


def _draw_total(name: str, values: Sequence[int], part_seconds: float, axis: TimeAxis) -> str:
    peak = max(values, default=0)
    return "".join(
        [
            _draw_area(values, part_seconds, 1.05 * max(peak, 1), axis),
            draw_label(-22, name),
            draw_text(LEFT - 8, -8, f"up to {round_bytes(peak)}", "end"),
        ]
    )


def _draw_worker(
    worker: WorkerTimeline,
    usage: WorkerUsage,
    plan: PlanSummary,
    part_seconds: float,
    largest: int,
    axis: TimeAxis,
) -> str:
    limit = usage.limit
    is_near = bool(limit) and limit <= _FARTHEST_LIMIT * max(largest, 1)
    lines = [("limit", 1.0), ("spill", plan.spill), ("pause", plan.pause)] if is_near else []
    near = [(style, share * limit) for style, share in lines if share]
    top = 1.05 * max([largest, 1, *(size for _, size in near)])
    peak = max(worker.memory, default=0)
    of_limit = f" of {round_bytes(limit)}" if limit else ""
    parts = [
        f"<title>{escape(_describe(worker, peak, of_limit))}</title>",
        *(_draw_span("paused", start, end, _BAND, axis) for start, end in worker.paused),
        _draw_area(worker.memory, part_seconds, top, axis),
        *(
            f'<path class="{style}" d="M{LEFT} {-_BAND * size / top:.1f}H{WIDTH - RIGHT}"/>'
            for style, size in near
        ),
        *(_draw_span("disk", start, end, 4, axis) for start, end in worker.spilling),
        *(f'<path class="killed" d="M{axis.place(x):.1f} 3V{-_BAND}"/>' for x in worker.killed),
        *(f'<path class="restart" d="M{axis.place(x):.1f} 5V-8"/>' for x in worker.restarts),
        draw_label(-22, f"worker {worker.name}"),
        draw_text(LEFT - 8, -8, f"up to {round_bytes(peak)}{of_limit}", "end"),
    ]
    return "".join(parts)


def _describe(worker: WorkerTimeline, peak: int, of_limit: str) -> str:
    facts = [f"worker {worker.name}: up to {round_bytes(peak)}{of_limit}"]
    for name, spells in (("paused", worker.paused), ("results on disk", worker.spilling)):
        if spells:
            facts.append(f"{name} from {format_duration(spells[0][0])} on")
    for name, times in (
        ("ended for lack of memory", worker.killed),
        ("restarted", worker.restarts),
    ):
        if times:
            facts.append(f"{name} after {', '.join(map(format_duration, times))}")
    return "; ".join(facts)


def _draw_area(values: Sequence[int], part_seconds: float, top: float, axis: TimeAxis) -> str:
    points = [f"M{LEFT} 0"]
    for number, value in enumerate(values, 1):
        points.append(f"V{-_BAND * value / top:.1f}H{axis.place(number * part_seconds):.1f}")
    line = f'<path class="axis" d="M{LEFT} 0H{WIDTH - RIGHT}"/>'
    return f'<path class="data" d="{"".join(points)}V0Z"/>{line}'


def _draw_span(style: str, start: float, end: float, height: float, axis: TimeAxis) -> str:
    x = axis.place(start)
    width = max(1.5, axis.place(end) - x)  # a short one is still to be seen
    return (
        f'<rect class="{style}" x="{x:.1f}" y="{-height}" width="{width:.1f}" height="{height}"/>'
    )
