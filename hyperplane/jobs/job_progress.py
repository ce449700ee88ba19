"""How jobs stand, step by step: a tree for a terminal, lines for everything else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hyperplane.jobs import requirements
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.states import DONE, IN_PROGRESS, Attempt, Job, WorkUnit
from hyperplane.jobs.step_command import attempt_prefix

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Of a step that has not begun, and of one that never will.
WAITING, NOT_RUN = "waits", "not run"
#: Chunks of a step that did not end well and are shown by themselves.
_MAX_SHOWN = 5
_STYLES = {DONE: "green", IN_PROGRESS: "cyan", WAITING: "dim", NOT_RUN: "dim", "pending": "dim"}


@dataclass(frozen=True)
class StepProgress:
    """How one step of a job stands.

    Parameters
    ----------
    name : str
        The step.
    status : str
        That of its last attempt; ``waits`` or ``not run`` when there is none.
    seconds : float
        For how long attempts at it have run: pauses between them, and the time between the end of
        the job and its resume, do not count. Where several chunks run at once they count once.
    attempts : int
        How often it, or the chunk that was tried most often, has been tried.
    chunks : int
        How many there are; 0 where the step is whole.
    counts : mapping of str to int
        Chunks by the status of their last attempt.
    cells : str
        The cell of a notebook that runs, such as ``"3/10"``.
    bad : tuple of Attempt
        Last attempts that did not end well, by chunk.
    """

    name: str
    status: str
    seconds: float
    attempts: int
    chunks: int
    counts: Mapping[str, int]
    cells: str
    bad: tuple[Attempt, ...]

    @property
    def detail(self) -> str:
        """Chunks, cell and attempt, as far as there is something to say."""
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
    """How the steps of a job stand.

    Parameters
    ----------
    job : Job
        The job.
    attempts : sequence of Attempt
        All attempts at its steps.
    now : float
        Seconds since 1970.

    Returns
    -------
    list of StepState
        In the order of the file; the installation of requirements first, where there is one.
    """
    of_step: dict[str, list[Attempt]] = {}
    for one in attempts:
        of_step.setdefault(one.step, []).append(one)
    named: list[tuple[str, Step | None]] = [(step.name, step) for step in job.pipeline.steps]
    if job.pipeline.requirements is not None:
        named.insert(0, (requirements.INSTALL_STEP, None))
    return [
        _one_step_progress(job, name, step, of_step.get(name, []), job.ended or now)
        for name, step in named
    ]


def _one_step_progress(
    job: Job, name: str, step: Step | None, attempts: list[Attempt], now: float
) -> StepProgress:
    last = list({one.chunk: one for one in attempts}.values())
    chunks = 0 if step is None else step.chunk_count
    counts = Counter(one.status for one in last)
    bad = tuple(one for one in last if one.status not in (DONE, IN_PROGRESS))
    if not last:
        status = NOT_RUN if job.processed else WAITING
    elif counts[IN_PROGRESS]:
        status = IN_PROGRESS
    elif bad:
        status = bad[-1].status
    elif counts[DONE] >= max(1, chunks):
        status = DONE
    else:
        status = NOT_RUN if job.processed else IN_PROGRESS
    cells = ""
    if step is not None and step.kind == "notebook" and status == IN_PROGRESS:
        cells = ", ".join(filter(None, (_current_cell(job, one, chunks) for one in last)))
    return StepProgress(
        name, status, _total_seconds(attempts, now), max((one.number for one in last), default=0),
        chunks, dict(counts), cells, bad,
    )  # fmt: skip


def _total_seconds(attempts: Iterable[Attempt], now: float) -> float:
    """Seconds in which at least one of some attempts ran."""
    total, until = 0.0, 0.0
    for begun, ended in sorted((one.started, one.ended or now) for one in attempts):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total


def _current_cell(job: Job, attempt: Attempt, chunks: int) -> str:
    """The cell that an attempt at a notebook has come to."""
    if attempt.status != IN_PROGRESS:
        return ""
    files = attempt_prefix(job, WorkUnit(attempt.step, attempt.chunk, chunks), attempt.number)
    try:
        cell = files.with_name(f"{files.name}.progress").read_text()[:20]
    except OSError:
        return ""
    return f"{cell} of [{attempt.chunk}]" if chunks else cell


def render_tree(job: Job, states: Sequence[StepProgress], now: float) -> RenderableType:
    """A job and its steps as a tree of rich.

    Parameters
    ----------
    job : Job
        The job.
    states : sequence of StepState
        Of :func:`step_states`.
    now : float
        Seconds since 1970.

    Returns
    -------
    rich.console.RenderableType
    """
    from rich.text import Text
    from rich.tree import Tree

    head = Text.assemble(
        (job.name, "bold"),
        f" ({job.id[:8]})  ",
        _styled(job.status),
        f"  {_job_duration(job, now)}",
    )
    if job.dashboard:
        head.append(f"\ndashboard {to_plain_line(job.dashboard)}")
    tree = Tree(head)
    names = max((len(one.name) for one in states), default=0)
    words = max(len(one.status) for one in states) if job.processed else len(IN_PROGRESS)
    for one in states:
        label = Text.assemble(f"{one.name:<{names}}  ", _styled(one.status, words))
        if one.counts:
            label.append(f"  {format_duration(one.seconds):>8}  {one.detail}")
        label.rstrip()
        branch = tree.add(label)
        for attempt in one.bad[:_MAX_SHOWN]:
            if why := _attempt_reason(attempt):
                branch.add(Text(why, style="red", overflow="fold"))
        if len(one.bad) > _MAX_SHOWN:
            branch.add(Text(f"and {len(one.bad) - _MAX_SHOWN} more", style="red"))
    if job.processed and job.reason and not any(one.bad for one in states):
        tree.add(Text(to_plain_line(job.reason), style="red"))
    return tree


def _styled(status: str, width: int = 0) -> tuple[str, str]:
    return f"{status:<{width}}", _STYLES.get(status, "red")


def _attempt_reason(attempt: Attempt) -> str:
    chunk = f"[{attempt.chunk}] " if attempt.chunk >= 0 else ""
    return f"{chunk}{to_plain_line(attempt.reason)}" if attempt.reason else ""


def _job_duration(job: Job, now: float) -> str:
    begun = job.started or job.submitted
    return format_duration(max(0.0, (job.ended or now) - begun))


class ProgressLines:
    """What has changed since it was last asked for, as lines; for what is no terminal.

    Parameters
    ----------
    several : bool
        Whether each line shall name its job.
    """

    def __init__(self, *, several: bool = False) -> None:
        self._several = several
        self._told: dict[tuple[str, str, int], tuple[object, ...]] = {}

    def lines(
        self, job: Job, attempts: Sequence[Attempt], states: Iterable[StepProgress], now: float
    ) -> Iterator[str]:
        """A line for each step, failed chunk and job whose status is another one.

        Parameters
        ----------
        job : Job
            The job.
        attempts : sequence of Attempt
            All attempts at its steps.
        states : iterable of StepState
            Of :func:`step_states`.
        now : float
            Seconds since 1970.

        Yields
        ------
        str
            ``"14:05:35 extract: done in 2.1 s"``
        """
        who = f"{job.name} ({job.id[:8]}) " if self._several else ""
        at = time.strftime("%H:%M:%S", time.localtime(now))
        for one in attempts:
            if one.chunk >= 0 and one.status not in (DONE, IN_PROGRESS) and self._is_new(
                (job.id, f"[{one.step}", one.chunk), (one.number, one.status)
            ):  # fmt: skip
                why = to_plain_line(one.reason)
                yield f"{at} {who}{one.step} [{one.chunk}]: {one.status}: {why}"
        for state in states:
            tenths = 10 * state.counts.get(DONE, 0) // state.chunks if state.chunks else 0
            key = (job.id, state.name, -1)
            if state.counts and self._is_new(key, (state.status, state.attempts, tenths)):
                yield f"{at} {who}{_step_line(state)}"
        if job.dashboard and self._is_new((job.id, "", -2), (job.dashboard,)):
            yield f"{at} {who}dashboard {to_plain_line(job.dashboard)}"
        if self._is_new((job.id, "", -1), (job.status,)):
            took = f" in {_job_duration(job, now)}" if job.processed else ""
            why = f": {to_plain_line(job.reason)}" if job.reason else ""
            yield f"{at} job {job.name} ({job.id[:8]}): {job.status}{took}{why}"

    def _is_new(self, key: tuple[str, str, int], value: tuple[object, ...]) -> bool:
        before = self._told.get(key)
        self._told[key] = value
        return before != value


def _step_line(state: StepProgress) -> str:
    took = "" if state.status == IN_PROGRESS else f" in {format_duration(state.seconds)}"
    detail = f" ({state.detail})" if state.detail else ""
    why = _attempt_reason(state.bad[-1]) if state.bad and not state.chunks else ""
    return f"{state.name}: {state.status}{took}{detail}" + (f": {why}" if why else "")


def format_duration(seconds: float) -> str:
    """A time for people.

    Examples
    --------
    >>> duration(2.14), duration(75), duration(7500)
    ('2.1 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


def to_plain_line(text: str) -> str:
    r"""One line without the characters that a terminal obeys.

    Examples
    --------
    >>> to_plain_line("two\nlines\x1b[2J")
    'two lines[2J'
    """
    shown = "".join(mark for mark in text if mark.isprintable() or mark.isspace())
    return " ".join(shown.split())
