"""Progress of a computation as one line for a terminal and as HTML for a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from hyperplane.core.units import format_bytes, format_duration, plural, round_bytes

#: Characters of the bar on a terminal.
_BAR_WIDTH = 12
_BAR = "<progress value='{value}' max='{maximum}' style='width:16em'></progress>"


@dataclass(frozen=True)
class ComputeFigures:
    """What the scheduler has sent about the tasks of a cluster.

    Parameters
    ----------
    done, active : int
        Number of tasks that have ended, and of those that have not.
    left : float or None
        Seconds until the end, if they can be estimated.
    workers, paused : int
        Number of worker processes, and of those that are paused.
    memory, limit, spilled : int
        Memory of all processes, their limit, and data on disk, in bytes.
    operations : tuple of tuple
        Name, tasks that have ended, all tasks, and bytes of results of each shown operation.
    others : int
        Number of operations that are not shown.
    """

    done: int
    active: int
    left: float | None
    workers: int
    paused: int
    memory: int
    limit: int
    spilled: int
    operations: tuple[tuple[str, int, int, int], ...]
    others: int

    @classmethod
    def of_message(cls, message: dict[str, Any]) -> ComputeFigures:
        """Return the figures in a message of the scheduler."""
        known = {name: message[name] for name in cls.__dataclass_fields__}
        operations = tuple((_clean(name), *counts) for name, *counts in message["operations"])
        return cls(**{**known, "operations": operations})

    @property
    def total(self) -> int:
        """Number of tasks."""
        return self.done + self.active

    def as_line(self, seconds: float, width: int) -> str:
        """Return one line for a computation of some seconds, of the parts that fit into ``width``.

        Examples
        --------
        >>> figures = ComputeFigures(
        ...     30, 90, 12.0, 2, 0, 10**9, 4 * 10**9, 0, (("sum", 10, 20, 0),), 0
        ... )
        >>> figures.as_line(4.0, 80)
        '[###---------] 30 of 120 tasks, 4.0 s, about 12 s left; memory 1 of 4 GB'
        """
        full = _BAR_WIDTH * self.done // max(1, self.total)
        return self._join_parts(f"[{'#' * full}{'-' * (_BAR_WIDTH - full)}] ", seconds, width)

    def as_text(self, seconds: float, width: int) -> str:
        """Return the same without a bar, for a log."""
        return self._join_parts("computing: ", seconds, width)

    def _join_parts(self, start: str, seconds: float, width: int) -> str:
        running = [f"{name} {done} of {total}" for name, done, total, _ in self.operations
                   if done < total]  # fmt: skip
        line = f"{start}{self._times(seconds)}"[:width]
        for part in (self._memory(), *running[:1]):
            if len(line) + len(part) + 2 > width:
                break
            line += f"; {part}"
        return line

    def as_html(self, seconds: float) -> str:
        """Return bars of all tasks, of the memory and of each operation."""
        rows = [
            _row("<b>all tasks</b>", self.done, self.total, self._times(seconds)),
            _row(f"memory of {plural(self.workers, 'worker')}", self.memory, self.limit,
                 self._memory().removeprefix("memory ")),
        ]  # fmt: skip
        for name, done, total, size in self.operations:
            results = f", {round_bytes(size)} of results" if size else ""
            rows.append(_row(html.escape(name), done, total, f"{done:,} of {total:,}{results}"))
        if self.others:
            rows.append(
                f"<tr><td></td><td></td><td>and {plural(self.others, 'operation')} more</td></tr>"
            )
        return f"<table>{''.join(rows)}</table>"

    def _times(self, seconds: float) -> str:
        left = "" if self.left is None else f", about {format_duration(self.left)} left"
        return f"{self.done:,} of {_tasks(self.total)}, {format_duration(seconds)}{left}"

    def _memory(self) -> str:
        parts = [f"memory {_format_share(self.memory, self.limit)}"]
        if self.spilled:
            parts.append(f"{round_bytes(self.spilled)} on disk")
        if self.paused:
            parts.append(f"{plural(self.paused, 'worker')} paused")
        return ", ".join(parts)

    def describe_end(
        self, seconds: float, error: BaseException | None, counted: tuple[int, int] | None
    ) -> str:
        """Return one line for a call that has ended.

        ``error`` is what ended the call; None if it returned. ``counted`` has the numbers of tasks
        that have ended and that have not, if they are known after the end.
        """
        time_text = format_duration(seconds)
        if error is None and counted is not None and not counted[1]:
            return f"{_tasks(counted[0])} in {time_text}"
        done, active = counted or (self.done, self.active)
        tasks = f"{done:,} of {_tasks(done + active)}"
        if error is None:
            return f"{time_text}; {tasks} have ended"
        verb = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        return f"{verb} after {time_text}; {tasks} had ended"


def _tasks(count: int) -> str:
    return f"{count:,} task{'' if count == 1 else 's'}"


def _clean(name: str) -> str:
    """Return a name without characters that a terminal would interpret."""
    return "".join(each for each in name if each.isprintable())


def _row(label: str, value: int, maximum: int, text: str) -> str:
    bar = _BAR.format(value=value, maximum=maximum) if maximum else ""
    style = "style='text-align:left'"
    return f"<tr><td {style}>{label}</td><td>{bar}</td><td {style}>{text}</td></tr>"


def _format_share(used: int, limit: int) -> str:
    """Format used and available bytes with one unit if they have the same.

    Examples
    --------
    >>> _format_share(10**9, 4 * 10**9), _format_share(5 * 10**8, 4 * 10**9)
    ('1 of 4 GB', '500 MB of 4 GB')
    """
    if not limit:
        return round_bytes(used)
    first, second = round_bytes(used), format_bytes(round(limit, -8))
    unit = second.rpartition(" ")[2]
    return f"{first.removesuffix(f' {unit}')} of {second}"
