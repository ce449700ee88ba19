"""Progress of jobs by step, as a tree for terminals and as lines for other output."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hyperplane.core.units import format_duration
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution import requirements
from hyperplane.jobs.execution.step_command import attempt_prefix
from hyperplane.jobs.store.job_records import (
    DONE,
    IN_PROGRESS,
    Attempt,
    Job,
    WorkUnit,
    count_seconds,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Status of a step that has not started, and of one that will not.
WAITING, NOT_RUN = "waits", "not run"
#: Maximum failed chunks shown per step.
_MAX_SHOWN = 5
_STYLES = {DONE: "green", IN_PROGRESS: "cyan", WAITING: "dim", NOT_RUN: "dim", "pending": "dim"}


@dataclass(frozen=True)
class StepProgress:
    """Progress of one step of a job.

    Parameters
    ----------
    name : str
        The step.
    status : str
        ``in progress`` if an attempt is running; else that of a failed attempt; else ``done`` if
        the step or all its chunks are done. Otherwise ``waits`` or ``in progress`` while the job
        is open, and ``not run`` after its end.
    seconds : float
        Time during which at least one attempt ran.
    attempts : int
        Number of attempts; for a step with chunks, the highest number for one chunk.
    chunks : int
        Number of chunks; 0 for a step without chunks.
    counts : mapping of str to int
        Number of chunks by the status of their last attempt.
    cells : str
        Current cell of a notebook, such as ``"3/10"``, or of each running chunk.
    failed : tuple of Attempt
        Last attempt at the step or at each chunk, if it did not succeed.
    """

    name: str
    status: str
    seconds: float
    attempts: int
    chunks: int
    counts: Mapping[str, int]
    cells: str
    failed: tuple[Attempt, ...]

    @property
    def detail(self) -> str:
        """Chunks, cell and attempt number, if any."""
        parts = []
        if self.chunks and self.counts:
            others = (f", {count} {status}" for status, count in self.counts.items()
                      if status != DONE)  # fmt: skip
            parts.append(f"{self.counts.get(DONE, 0)} of {self.chunks} done{''.join(others)}")
        if self.cells:
            parts.append(f"cell {self.cells}")
        if self.attempts > 1:
            parts.append(f"attempt {self.attempts}")
        return "; ".join(parts)


def step_progress(job: Job, attempts: Sequence[Attempt], now: float) -> list[StepProgress]:
    """Return the progress of a job's steps in the order of the file.

    The installation of requirements, if any, comes first. Of a job whose definition is damaged,
    these are the steps that have begun. ``now`` is in seconds since 1970.
    """
    of_step: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        of_step.setdefault(attempt.step, []).append(attempt)
    pipeline = job.readable_pipeline
    named: list[tuple[str, Step | None]]
    if pipeline is None:
        named = [(name, None) for name in of_step]
    else:
        named = [(step.name, step) for step in pipeline.steps]
        if pipeline.requirements is not None:
            named.insert(0, (requirements.INSTALL_STEP, None))
    return [
        _progress_of_step(job, name, step, of_step.get(name, []), job.ended or now)
        for name, step in named
    ]


def _progress_of_step(
    job: Job, name: str, step: Step | None, attempts: list[Attempt], now: float
) -> StepProgress:
    last_attempts = list({attempt.chunk: attempt for attempt in attempts}.values())
    chunks = 0 if step is None else step.chunk_count
    counts = Counter(attempt.status for attempt in last_attempts)
    failed = tuple(
        attempt for attempt in last_attempts if attempt.status not in (DONE, IN_PROGRESS)
    )
    if not last_attempts:
        status = NOT_RUN if job.processed else WAITING
    elif counts[IN_PROGRESS]:
        status = IN_PROGRESS
    elif failed:
        status = failed[-1].status
    elif counts[DONE] >= max(1, chunks):
        status = DONE
    else:
        status = NOT_RUN if job.processed else IN_PROGRESS
    cells = ""
    if step is not None and step.kind == "notebook" and status == IN_PROGRESS:
        cells = ", ".join(
            filter(None, (_current_cell(job, attempt, chunks) for attempt in last_attempts))
        )
    return StepProgress(
        name, status, _total_seconds(attempts, now),
        max((attempt.number for attempt in last_attempts), default=0),
        chunks, dict(counts), cells, failed,
    )  # fmt: skip


def _total_seconds(attempts: Iterable[Attempt], now: float) -> float:
    """Return the seconds during which at least one attempt ran."""
    total, until = 0.0, 0.0
    for begun, ended in sorted((attempt.started, attempt.ended or now) for attempt in attempts):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total


def _current_cell(job: Job, attempt: Attempt, chunks: int) -> str:
    """Return the notebook cell that an attempt is executing."""
    if attempt.status != IN_PROGRESS:
        return ""
    files = attempt_prefix(job, WorkUnit(attempt.step, attempt.chunk, chunks), attempt.number)
    try:
        cell = files.with_name(f"{files.name}.progress").read_text()[:20]
    except OSError:
        return ""
    return f"{cell} of [{attempt.chunk}]" if chunks else cell


def render_tree(job: Job, states: Sequence[StepProgress], now: float) -> RenderableType:
    """Render a job and its steps as a rich tree."""
    from rich.text import Text
    from rich.tree import Tree

    head = Text.assemble(
        (job.name, "bold"),
        f" ({job.id[:8]})  ",
        _styled(job.status),
        f"  {describe_duration_or_wait(job, now)}",
    )
    if job.dashboard:
        head.append(f"\ndashboard {to_plain_line(job.dashboard)}")
    tree = Tree(head)
    name_width = max((len(state.name) for state in states), default=0)
    status_width = len(IN_PROGRESS)
    if job.processed:  # without steps if its definition is damaged
        status_width = max((len(state.status) for state in states), default=0)
    for state in states:
        label = Text.assemble(f"{state.name:<{name_width}}  ", _styled(state.status, status_width))
        if state.counts:
            label.append(f"  {format_duration(state.seconds):>8}  {state.detail}")
        label.rstrip()
        branch = tree.add(label)
        for attempt in state.failed[:_MAX_SHOWN]:
            if why := _attempt_reason(attempt):
                branch.add(Text(why, style="red", overflow="fold"))
        if len(state.failed) > _MAX_SHOWN:
            branch.add(Text(f"and {len(state.failed) - _MAX_SHOWN} more", style="red"))
    if job.processed and job.reason and not any(state.failed for state in states):
        tree.add(Text(to_plain_line(job.reason), style="red"))
    return tree


def _styled(status: str, width: int = 0) -> tuple[str, str]:
    return f"{status:<{width}}", _STYLES.get(status, "red")


def _attempt_reason(attempt: Attempt) -> str:
    chunk = f"[{attempt.chunk}] " if attempt.chunk >= 0 else ""
    return f"{chunk}{to_plain_line(attempt.reason)}" if attempt.reason else ""


def describe_duration(job: Job, now: float) -> str:
    """Return how long the runs of a job took until now; empty if it has not begun."""
    seconds = count_seconds(job, now)
    return "" if seconds is None else format_duration(seconds)


def describe_duration_or_wait(job: Job, now: float) -> str:
    """Return how long the runs of a job took, or how long it waits for its first."""
    waited = max(0.0, (job.ended or now) - job.requested)
    return describe_duration(job, now) or format_duration(waited)


class ProgressLines:
    """Changes of jobs since the last call, as lines for output that is not a terminal.

    ``several``: whether each line names its job.
    """

    def __init__(self, *, several: bool = False) -> None:
        self._several = several
        self._reported: dict[tuple[str, str, int], tuple[object, ...]] = {}

    def lines(
        self, job: Job, attempts: Sequence[Attempt], states: Iterable[StepProgress], now: float
    ) -> Iterator[str]:
        """Yield a line for each step, failed chunk and job whose status has changed.

        For example ``"14:05:35 extract: done in 2.1 s"``. ``now`` is in seconds since 1970.
        """
        job_label = f"{job.name} ({job.id[:8]}) " if self._several else ""
        at = time.strftime("%H:%M:%S", time.localtime(now))
        for attempt in attempts:
            if attempt.chunk >= 0 and attempt.status not in (DONE, IN_PROGRESS) and self._is_new(
                (job.id, attempt.step, attempt.chunk), (attempt.number, attempt.status)
            ):  # fmt: skip
                why = to_plain_line(attempt.reason)
                yield f"{at} {job_label}{attempt.step} [{attempt.chunk}]: {attempt.status}: {why}"
        for state in states:
            tenths = 10 * state.counts.get(DONE, 0) // state.chunks if state.chunks else 0
            key = (job.id, state.name, -1)
            if state.counts and self._is_new(key, (state.status, state.attempts, tenths)):
                yield f"{at} {job_label}{_step_line(state)}"
        if job.dashboard and self._is_new((job.id, "", -2), (job.dashboard,)):
            yield f"{at} {job_label}dashboard {to_plain_line(job.dashboard)}"
        if self._is_new((job.id, "", -1), (job.status,)):
            duration_text = f" in {describe_duration_or_wait(job, now)}" if job.processed else ""
            why = f": {to_plain_line(job.reason)}" if job.reason else ""
            yield f"{at} job {job.name} ({job.id[:8]}): {job.status}{duration_text}{why}"

    def _is_new(self, key: tuple[str, str, int], value: tuple[object, ...]) -> bool:
        previous = self._reported.get(key)
        self._reported[key] = value
        return previous != value


def _step_line(state: StepProgress) -> str:
    duration_text = "" if state.status == IN_PROGRESS else f" in {format_duration(state.seconds)}"
    detail = f" ({state.detail})" if state.detail else ""
    why = _attempt_reason(state.failed[-1]) if state.failed and not state.chunks else ""
    return f"{state.name}: {state.status}{duration_text}{detail}" + (f": {why}" if why else "")


def to_log_line(text: str) -> str:
    r"""Return a line of a log with its indentation, without terminal control characters.

    Examples
    --------
    >>> to_log_line("\tif x:\x1b[2J \r")
    '        if x:[2J'
    """
    return "".join(each for each in text.expandtabs() if each.isprintable()).rstrip()


def to_plain_line(text: str) -> str:
    r"""Return text as one line without terminal control characters.

    Examples
    --------
    >>> to_plain_line("two\nlines\x1b[2J")
    'two lines[2J'
    """
    printable = "".join(
        character for character in text if character.isprintable() or character.isspace()
    )
    return " ".join(printable.split())
