"""Ends of the logs of attempts, as pages and notebooks show them."""

from __future__ import annotations

import re
from pathlib import Path

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.requirements import INSTALL_STEP
from hyperplane.jobs.execution.step_log import read_last_lines
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS, Attempt, Job

#: Most bytes of the end of a log that are read: a line can be as long as the log.
_BYTES = 1 << 16
#: Characters of a line that are shown.
_LINE_LENGTH = 300
_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def has_failed(attempt: Attempt) -> bool:
    """Return whether an attempt has ended without success."""
    return attempt.status not in (DONE, IN_PROGRESS)


def read_log_end(job: Job, attempt: Attempt, step: Step | None, lines: int) -> str:
    """Return the last lines of the log of an attempt, or why they are not shown."""
    if attempt.status == IN_PROGRESS and _may_have_secrets(attempt, step):
        return "shown when the attempt has ended: only then its secrets are masked"
    if "\0" in attempt.log:
        return "its log cannot be read (its path has a NUL character)"
    log = Path(job.folder, attempt.log)
    try:
        # A record of a shared store must not make a viewer read other files, or wait for a pipe.
        is_own = log.resolve().is_relative_to(Path(job.folder).resolve())
        if not is_own or (log.exists() and not log.is_file()):
            return "its log is not a file in the folder of the job"
        last = read_last_lines(log, lines, _BYTES).split("\n")
    except OSError as error:
        return f"its log cannot be read ({error.strerror})"
    except RuntimeError:  # of resolve, before Python 3.13
        return "its log cannot be read (its path is a loop of symbolic links)"
    except ValueError:
        return "its log cannot be read (its path is no text of UTF-8)"
    return "\n".join(_cut(_COLORS.sub("", line)) for line in last)


def _may_have_secrets(attempt: Attempt, step: Step | None) -> bool:
    """Return whether a step has secrets; a step without a readable definition may have some."""
    return attempt.step != INSTALL_STEP if step is None else bool(step.secrets)


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_LENGTH else f"{text[:_LINE_LENGTH]}…"
