"""Schedules of jobs: lines for cron and manifests for Kubernetes; nothing of ours stays alive."""

from __future__ import annotations

import fcntl
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hyperplane.errors import Fault, RequestError, check
from hyperplane.jobs.home import jobs_folder

#: Characters of a command that every cron takes.
MAX_LINE_LENGTH = 998
_MARKER = "# hyperplane schedule "
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Schedule:
    """A job that is to be submitted again and again.

    Parameters
    ----------
    name : str
        Name of the schedule.
    cron : str
        When, as :func:`hyperplane.jobs.cron.parse_cron` gives it.
    argv : tuple of str
        Program and arguments that submit the job.
    folder : str
        Where they are run.
    environment : tuple of (str, str)
        Names and values of variables that they need.
    log : str
        File that what they say is added to; cron sends it by mail when empty.
    """

    name: str
    cron: str
    argv: tuple[str, ...]
    folder: str
    environment: tuple[tuple[str, str], ...] = ()
    log: str = ""


def name_faults(name: str) -> list[Fault]:
    """What is wrong with the name of a schedule."""
    if _NAME.fullmatch(name):
        return []
    allowed = "up to 63 letters, digits and . _ -, with a letter or digit at both ends"
    return [Fault("--name", repr(name), allowed)]


def crontab_line(schedule: Schedule) -> str:
    r"""The line for a crontab.

    Parameters
    ----------
    schedule : Schedule
        What is to be submitted, and when.

    Returns
    -------
    str
        Without a line break at its end.

    Raises
    ------
    RequestError
        When cron cannot hold it: a line break in an argument, or too many characters.

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
    # Cron takes % for a line break, also between quotes.
    command = command.replace("%", "\\%")
    faults = []
    if "\n" in command or "\r" in command:
        allowed = "arguments of one line"
        faults.append(Fault("schedule", "an argument with a line break", allowed))
    if len(command) > MAX_LINE_LENGTH:
        allowed = f"up to {MAX_LINE_LENGTH} characters, as cron takes"
        advice = "put parameters into the pipeline file"
        faults.append(Fault("schedule", f"a line of {len(command)} characters", allowed, advice))
    check(faults)
    return f"{schedule.cron} {command} {_MARKER}{schedule.name}"


def read_installed() -> dict[str, str]:
    """The lines of this user's crontab that are schedules of ours, by name."""
    return {name: line for line in _read_crontab() if (name := _schedule_name(line))}


def install(schedule: Schedule) -> bool:
    """Put a schedule into this user's crontab, in place of one of the same name.

    Returns
    -------
    bool
        Whether there was one.
    """
    line = crontab_line(schedule)
    with _hold_lock():
        before = _read_crontab()
        kept = [one for one in before if _schedule_name(one) != schedule.name]
        _write_crontab([*kept, line])
    return len(kept) < len(before)


def remove(name: str) -> None:
    """Take a schedule out of this user's crontab.

    Raises
    ------
    RequestError
        When it is not there.
    """
    with _hold_lock():
        before = _read_crontab()
        kept = [one for one in before if _schedule_name(one) != name]
        if len(kept) == len(before):
            there = ", ".join(filter(None, map(_schedule_name, before))) or "none"
            allowed = f"one that is in the crontab: {there}"
            raise RequestError([Fault("--name", repr(name), allowed)])
        _write_crontab(kept)


def _schedule_name(line: str) -> str:
    """The name of the schedule that a line is; empty for lines of others."""
    _, mark, name = line.rpartition(f" {_MARKER}")
    return name.strip() if mark and not line.startswith("#") and not name_faults(name) else ""


@contextmanager
def _hold_lock() -> Iterator[None]:
    """Let two programs not read, change and write at the same time."""
    with (jobs_folder() / "crontab.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_crontab() -> list[str]:
    done = _run_crontab("-l")
    if done.returncode and "no crontab" in done.stderr.lower():
        return []
    if done.returncode:
        raise _crontab_error("crontab -l", done)
    return done.stdout.splitlines()


def _write_crontab(lines: Sequence[str]) -> None:
    done = _run_crontab("-", "".join(f"{line}\n" for line in lines))
    if done.returncode:
        raise _crontab_error("crontab -", done)


def _run_crontab(argument: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - a fixed program
            ["crontab", argument],  # noqa: S607 - wherever the system has it
            input=text, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    except FileNotFoundError:
        advice = "print the line and give it to whatever runs things here, or --runner kubernetes"
        fault = Fault("crontab", "no such program", "a machine with cron", advice)
        raise RequestError([fault]) from None
    except subprocess.TimeoutExpired:
        fault = Fault("crontab", "no answer in 60 s", "an answer", "try again")
        raise RequestError([fault]) from None


def _crontab_error(command: str, done: subprocess.CompletedProcess[str]) -> RequestError:
    said = " ".join(done.stderr.split())[:300] or "nothing"
    asked = f"{command} ended with {done.returncode} and said {said}"
    allowed = "a crontab that this user may read and write"
    return RequestError([Fault("crontab", asked, allowed, "nothing was changed")])
