"""Picture of the durations of the runs of a pipeline, from the oldest to the newest."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from hyperplane.core.html_output import Markup, escape
from hyperplane.core.units import format_duration
from hyperplane.jobs.step_graph import find_state_style
from hyperplane.jobs.store.job_records import Job, count_seconds
from hyperplane.reports.time_axis import WIDTH, draw_text, picture

_HEIGHT, _TOP, _BAR = 110, 18, 14


def draw_durations(jobs: Sequence[Job]) -> Markup:
    """Return a bar for each job that has begun, newest first in the sequence; empty without any."""
    now = time.time()
    known = [(job, count_seconds(job, now)) for job in jobs]
    runs = [(job, seconds) for job, seconds in known if seconds is not None]
    if not runs:
        return Markup("")
    # That of a damaged record can be infinite.
    longest = max(1e-3, *(seconds for _, seconds in runs if math.isfinite(seconds)))
    width = min(_BAR, WIDTH / len(runs))
    parts = [draw_text(0, 12, f"up to {format_duration(longest)}")]
    for number, (job, took) in enumerate(reversed(runs)):
        height = max(1.5, (_HEIGHT - _TOP) * min(1.0, took / longest))
        text = escape(f"{job.run_name}: {job.status}, {format_duration(took)}")
        parts.append(
            f'<g class="{find_state_style(job.status)}"><title>{text}</title>'
            f'<rect x="{number * width:.1f}" y="{_HEIGHT - height:.1f}" '
            f'width="{max(1.0, width - 2):.1f}" height="{height:.1f}"/></g>'
        )
    drawn = picture("Durations of the runs of the list, from the oldest", _HEIGHT, parts)
    return Markup(f'<div class="durations">{drawn}</div>')
