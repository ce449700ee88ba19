"""Schedules of jobs as crontab lines; no process of this package keeps running for them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.jobs.store.jobs_home import jobs_folder
from hyperplane.jobs.submission.option_checks import NAME_FORM, NAME_PATTERN
from hyperplane.platforms.local.file_locks import exclusive_lock

#: Maximum length of the command in a line, with the comment at its end, that every cron accepts.
MAX_COMMAND_LENGTH = 998
_MARKER = "# hyperplane schedule "


@dataclass(frozen=True)
class Schedule:
    """A job that is submitted periodically.

    Parameters
    ----------
    name : str
        Name of the schedule.
    cron : str
        Cron expression, as :func:`hyperplane.jobs.cron.parse_cron` returns it.
    argv : tuple of str
        Program and arguments that submit the job.
    folder : str
        Working folder.
    environment : tuple of (str, str)
        Names and values of variables that the program needs.
    log : str
        File to which its output is appended; if empty, cron sends the output by mail.
    """

    name: str
    cron: str
    argv: tuple[str, ...]
    folder: str
    environment: tuple[tuple[str, str], ...] = ()
    log: str = ""


def name_faults(name: str) -> list[Fault]:
    """Return the faults of a schedule's name."""
    return [] if NAME_PATTERN.fullmatch(name) else [Fault("--name", repr(name), NAME_FORM)]


def crontab_line(schedule: Schedule) -> str:
    r"""Return the crontab line of a schedule, without a line break at its end.

    Raises
    ------
    RequestError
        If cron cannot represent it: a line break in an argument, or too many characters.

    Examples
    --------
    >>> print(crontab_line(Schedule("tidy", "0 6 * * *", ("tidy", "50%"), "/data")))
    0 6 * * * cd /data && tidy 50\% # hyperplane schedule tidy
    """
    variables = [f"{name}={shlex.quote(value)}" for name, value in schedule.environment]
    words = " ".join([*variables, shlex.join(schedule.argv)])
    command = f"cd {shlex.quote(schedule.folder)} && {words}"
    if schedule.log:
        command += f" >>{shlex.quote(schedule.log)} 2>&1"
    # Cron reads % as a line break, also in quotes.
    command = command.replace("%", "\\%") + f" {_MARKER}{schedule.name}"
    faults = []
    if "\n" in command or "\r" in command:
        allowed = "arguments without line breaks"
        faults.append(Fault("schedule", "an argument with a line break", allowed))
    if len(command) > MAX_COMMAND_LENGTH:
        allowed = f"at most {MAX_COMMAND_LENGTH} characters, the limit of cron"
        advice = "move parameters to the pipeline file"
        faults.append(Fault("schedule", f"a command of {len(command)} characters", allowed, advice))
    check(faults)
    return f"{schedule.cron} {command}"


def read_installed() -> dict[str, str]:
    """Return the lines of this user's crontab that are schedules, by name."""
    return {name: line for line in _read_crontab() if (name := _schedule_name(line))}


def install(schedule: Schedule) -> bool:
    """Add a schedule to this user's crontab; return whether it replaced one of the same name."""
    line = crontab_line(schedule)
    with _hold_lock():
        lines = _read_crontab()
        others = [entry for entry in lines if _schedule_name(entry) != schedule.name]
        _write_crontab([*others, line])
    return len(others) < len(lines)


def remove(name: str) -> None:
    """Remove a schedule from this user's crontab.

    Raises
    ------
    RequestError
        If the crontab has no schedule of this name.
    """
    with _hold_lock():
        lines = _read_crontab()
        others = [entry for entry in lines if _schedule_name(entry) != name]
        if len(others) == len(lines):
            names = ", ".join(filter(None, map(_schedule_name, lines))) or "none"
            allowed = f"a schedule in the crontab: {names}"
            raise RequestError([Fault("--name", repr(name), allowed)])
        _write_crontab(others)


def _schedule_name(line: str) -> str:
    """Return the name of the schedule in a crontab line; empty for other lines."""
    _, mark, name = line.rpartition(f" {_MARKER}")
    return name.strip() if mark and not line.startswith("#") and not name_faults(name) else ""


@contextmanager
def _hold_lock() -> Iterator[None]:
    """Lock the crontab, so that concurrent changes are not lost."""
    with exclusive_lock(jobs_folder() / "crontab.lock"):
        yield


def _read_crontab() -> list[str]:
    completed = _run_crontab("-l")
    if completed.returncode and "no crontab" in completed.stderr.lower():
        return []
    if completed.returncode:
        raise _crontab_error("crontab -l", completed)
    return completed.stdout.splitlines()


def _write_crontab(lines: Sequence[str]) -> None:
    completed = _run_crontab("-", "".join(f"{line}\n" for line in lines))
    if completed.returncode:
        raise _crontab_error("crontab -", completed)


def _run_crontab(argument: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - a fixed program
            ["crontab", argument],  # noqa: S607 - found on the PATH
            input=text, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    except FileNotFoundError:
        advice = "print the line for another scheduler, or use --runner kubernetes"
        fault = Fault("crontab", "no such program", "a machine with cron", advice)
        raise RequestError([fault]) from None
    except subprocess.TimeoutExpired:
        fault = Fault("crontab", "", "did not answer within 60 s", "try again")
        raise RequestError([fault]) from None


def _crontab_error(command: str, completed: subprocess.CompletedProcess[str]) -> RequestError:
    output = " ".join(completed.stderr.split())[:300] or "nothing"
    asked = f"{command} exited with {completed.returncode} and printed {output}"
    allowed = "a crontab that this user may read and write"
    return RequestError([Fault("crontab", asked, allowed, "nothing was changed")])
