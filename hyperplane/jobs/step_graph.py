"""Picture of the steps of a job in their order, with the state of each, as SVG for a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hyperplane.core.html_output import Markup, escape
from hyperplane.core.text_widths import elide_middle
from hyperplane.core.units import format_duration, plural
from hyperplane.jobs.definition.dependencies import order_in_waves
from hyperplane.jobs.job_progress import StepProgress
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS

#: Most lines between steps; more are counted in a text, as they would hide each other.
MOST_LINES = 400
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _EDGE = 190, 38, 40, 12, 6
#: Size of the font, where the texts of a box begin, and their largest width.
_SIZE, _LEFT = 11, 14
_TEXT_WIDTH = _WIDTH - _LEFT - 6
_STYLE = (
    f".hp-steps{{font:{_SIZE}px sans-serif;color:inherit}}"
    ".hp-steps text{fill:currentColor}"
    ".hp-steps rect{fill:none;stroke:var(--hp-c)}.hp-steps .hp-s{fill:var(--hp-c)}"
    ".hp-steps path{fill:none;stroke:currentColor;opacity:.45}"
    ".hp-steps .hp-n{font-weight:600}"
)
_STATE_STYLES = {DONE: "hp-good", IN_PROGRESS: "hp-run"}
_IDLE = {"waits", "not run", "pending", "scheduled"}


class Node(NamedTuple):
    """A step of the picture, and the names of the steps that it waits for."""

    name: str
    depends_on: tuple[str, ...]


def find_state_style(status: str) -> str:
    """Return the style of a status of a job, step or attempt."""
    if status == "cancelled":
        return "hp-warn"
    return _STATE_STYLES.get(status, "hp-idle" if status in _IDLE else "hp-bad")


def describe_state(state: StepProgress) -> str:
    """Return the state, time and attempt of a step in one line."""
    # "12 of 12 done" says it, in the little space of a box.
    parts = [] if state.status == DONE and state.chunks and state.detail else [state.status]
    if state.counts:
        parts += [state.detail] if state.detail else []
        parts.append(format_duration(state.seconds))
    return ", ".join(parts)


def draw_steps(nodes: Sequence[Node], states: Mapping[str, StepProgress]) -> Markup:
    """Return the steps from left to right, each beside those that it waits for."""
    waves = order_in_waves(nodes)
    place = {
        name: (column * (_WIDTH + _ACROSS) + 1, row * (_HEIGHT + _DOWN) + 1)
        for column, wave in enumerate(waves)
        for row, name in enumerate(wave)
    }
    lines = list(_list_lines(nodes, place))
    width = len(waves) * (_WIDTH + _ACROSS) - _ACROSS + 2
    height = max(map(len, waves), default=0) * (_HEIGHT + _DOWN) - _DOWN + 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hp-steps" role="img" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" aria-label="Steps in their order">',
        f"<style>{_STYLE}</style>",
        f'<path d="{"".join(lines[:MOST_LINES])}"/>' if lines else "",
        *(_draw_step(states[name], x, y) for name, (x, y) in place.items()),
        "</svg>",
    ]
    picture = f'<div class="hp-scroll">{"".join(parts)}</div>'
    if len(lines) > MOST_LINES:
        picture += f"<div>{plural(len(lines) - MOST_LINES, 'more line')} are not drawn</div>"
    return Markup(picture)


def _list_lines(nodes: Sequence[Node], place: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Yield the lines from steps to those that wait for them.

    Steps that wait for the same several steps have one point in common: fifty that wait for fifty
    others need a hundred lines, not 2500.
    """
    followers: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        if node.depends_on:
            followers.setdefault(tuple(sorted(node.depends_on)), []).append(node.name)
    for before, after in followers.items():
        ends = [(place[name][0] + _WIDTH, place[name][1] + _HEIGHT // 2) for name in before]
        starts = [(place[name][0], place[name][1] + _HEIGHT // 2) for name in after]
        if len(before) == 1 or len(after) == 1:
            for x, y in ends:
                for to_x, to_y in starts:
                    yield _draw_curve(x, y, to_x, to_y)
            continue
        x = min(each for each, _ in starts) - _ACROSS // 2
        y = (sum(each for _, each in ends) + sum(each for _, each in starts)) // (
            len(ends) + len(starts)
        )
        for from_x, from_y in ends:
            yield _draw_curve(from_x, from_y, x, y)
        for to_x, to_y in starts:
            yield _draw_curve(x, y, to_x, to_y)


def _draw_curve(x: int, y: int, to_x: int, to_y: int) -> str:
    """Return a line that leaves its row beside its end, so that it passes below few boxes."""
    bend = min((to_x - x) // 2, _ACROSS // 2)
    along = max(x, to_x - _ACROSS)
    start = f"M{x} {y}" if along == x else f"M{x} {y}H{along}"
    return f"{start}C{along + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"


def _draw_step(state: StepProgress, x: int, y: int) -> str:
    text = describe_state(state)
    name = elide_middle(state.name, _TEXT_WIDTH, _SIZE, bold=True)
    shown = elide_middle(text, _TEXT_WIDTH, _SIZE)
    is_cut = (name, shown) != (state.name, text)
    title = f"<title>{escape(f'{state.name}: {text}')}</title>" if is_cut else ""
    return (
        f'<g class="{find_state_style(state.status)}" transform="translate({x} {y})">{title}'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="3"/>'
        f'<rect class="hp-s" width="{_EDGE}" height="{_HEIGHT}" rx="3"/>'
        f'<text class="hp-n" x="{_LEFT}" y="16">{escape(name)}</text>'
        f'<text x="{_LEFT}" y="30">{escape(shown)}</text></g>'
    )
