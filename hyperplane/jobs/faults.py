"""Whether a step that failed may pass next time, by its exit code and the end of its log."""

from __future__ import annotations

import re
import signal
from pathlib import Path

#: Kinds of faults: of what it was given, of memory, and those that may pass.
INPUT, MEMORY, TRANSIENT = "input", "memory", "passing"
#: Bytes at the end of a log that are looked at.
_TAIL_BYTES = 8192

#: By convention: wrong usage, data or configuration (sysexits.h), no such program, no right.
_INPUT_CODES = {2, 64, 65, 66, 67, 68, 72, 76, 77, 78, 126, 127}
_MEMORY = re.compile(
    r"\b(MemoryError|OutOfMemory\w*|WorkerOutOfMemory|KilledWorker|ArrowMemoryError)\b|"
    r"std::bad_alloc|Cannot allocate memory|heap out of memory"
)
#: What an HTTP library says of an answer that may be another one next time.
_TRANSIENT_HTTP = re.compile(
    r"\b(408|425|429|500|502|503|504)\b[^\n]{0,40}\b(error|too many|unavailable|timeout|gateway)",
    re.IGNORECASE,
)
#: Errors of Python that the same program will meet again.
_INPUT_ERRORS = {
    "SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError", "ImportError",
    "ModuleNotFoundError", "TypeError", "ValueError", "AttributeError", "AssertionError",
    "IsADirectoryError", "NotADirectoryError", "FileNotFoundError", "PermissionError",
    "NotImplementedError", "UnicodeDecodeError", "ZeroDivisionError", "JSONDecodeError",
    "ValidationError", "RequestError", "UnknownPool", "DoesNotFit", "ConfigError", "MissingPackage",
    "OutputExists", "DataError", "BadLines", "WrongType", "PapermillMissingParameterException",
}  # fmt: skip
#: The last line of a traceback: the name of the error, perhaps with its module.
_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*)(?::|$)", re.MULTILINE)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def classify_failure(exit_code: int | None, log: str) -> str:
    r"""The kind of fault that ended an attempt.

    Parameters
    ----------
    exit_code : int or None
        Negative for a signal; None when the process left none, so that it was killed.
    log : str
        The end of what it wrote.

    Returns
    -------
    str
        ``"input"``: trying again makes no sense; ``"memory"``: it ran out of memory, or was
        killed as the system does then; ``"passing"``: anything else.

    Examples
    --------
    >>> kind_of(1, "Traceback ...\nValueError: could not convert string to float")
    'input'
    >>> kind_of(1, "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable")
    'passing'
    >>> kind_of(-9, "")
    'memory'
    """
    if exit_code == -signal.SIGKILL or (exit_code != 0 and _MEMORY.search(log)):
        return MEMORY
    if exit_code is None:
        return TRANSIENT
    if exit_code in _INPUT_CODES:
        return INPUT
    if _TRANSIENT_HTTP.search(log):
        return TRANSIENT
    return INPUT if _last_error_name(log) in _INPUT_ERRORS else TRANSIENT


def describe_failure(exit_code: int | None, log: str) -> str:
    """One line on why an attempt failed."""
    if exit_code is None:
        return "its process was killed"
    if exit_code == -signal.SIGKILL:
        return "ended by SIGKILL, as what needs more memory than there is"
    if exit_code < 0:
        return f"ended by {_signal_name(-exit_code)}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = f": {lines[-1][:300]}" if lines else ""
    return f"exit code {exit_code}{last}"


def read_tail(log: Path) -> str:
    """The end of a log, without colours."""
    try:
        with log.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, 2) - _TAIL_BYTES))
            return _COLORS.sub("", opened.read().decode(errors="replace"))
    except OSError:
        return ""


def _last_error_name(log: str) -> str:
    """The name of the last error of a traceback at the end of a log."""
    found = _ERROR.findall(log) if "Traceback" in log or "Error" in log else []
    names = [
        name for name in found if name.endswith(("Error", "Exception")) or name in _INPUT_ERRORS
    ]
    return names[-1] if names else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
