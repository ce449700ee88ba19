"""Classify failures of steps by exit code and the end of the log."""

from __future__ import annotations

import re
import signal

#: Kinds of failures: of the input, of memory, and transient ones.
INPUT, MEMORY, TRANSIENT = "input", "memory", "passing"

#: By convention: usage, data or configuration errors (sysexits.h), program not found, not
#: executable.
_INPUT_CODES = {2, 64, 65, 66, 67, 68, 72, 76, 77, 78, 126, 127}
_MEMORY = re.compile(
    r"\b(\w*MemoryError|OutOfMemory\w*|WorkerOutOfMemory|KilledWorker)\b|"  # _Array… of NumPy
    r"std::bad_alloc|Cannot allocate memory|heap out of memory"
)
#: The explanation of a worker out of memory, several lines to the end of the log.
_EXPLANATION = re.compile(r".*^[\w.]*WorkerOutOfMemory: (.+)", re.MULTILINE | re.DOTALL)
#: Message of an HTTP library about a response that may succeed next time.
_TRANSIENT_HTTP = re.compile(
    r"\b(408|425|429|500|502|503|504)\b[^\n]{0,40}\b(error|too many|unavailable|timeout|gateway)",
    re.IGNORECASE,
)
#: Python errors that the same program will raise again.
_INPUT_ERRORS = {
    "SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError", "ImportError",
    "ModuleNotFoundError", "TypeError", "ValueError", "AttributeError", "AssertionError",
    "IsADirectoryError", "NotADirectoryError", "FileNotFoundError", "PermissionError",
    "NotImplementedError", "UnicodeDecodeError", "UnicodeEncodeError", "ZeroDivisionError",
    "OverflowError", "FloatingPointError", "LookupError", "KeyError", "IndexError",
    "RecursionError", "JSONDecodeError", "ValidationError", "RequestError",
    "UnknownArgument", "UnknownPool", "DoesNotFit", "ConfigError",
    "MissingPackage", "UnsupportedModule", "OutputExists", "DataError", "BadLines", "WrongType",
    "PapermillMissingParameterException",
}  # fmt: skip
#: Lines around the errors of an ExceptionGroup, and what is before their lines.
_GROUP_FRAME = re.compile(r"\+[-+]+(?: \d+ -+|-)|\|\s*")
#: The last line of a traceback: the exception's name, possibly qualified.
_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*)(?::|$)", re.MULTILINE)


def classify_failure(exit_code: int | None, log: str) -> str:
    r"""Return the kind of failure that ended an attempt.

    Parameters
    ----------
    exit_code : int or None
        Negative for a signal; None if the process was killed without leaving one.
    log : str
        The end of its log.

    Returns
    -------
    str
        ``"input"``: a retry makes no sense; ``"memory"``: it ran out of memory, or was killed by
        SIGKILL; ``"passing"``: any other, possibly transient, failure.

    Examples
    --------
    >>> classify_failure(1, "Traceback ...\nKeyError: 'price'")
    'input'
    >>> classify_failure(1, "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable")
    'passing'
    >>> classify_failure(-9, "")
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


def describe_failure(exit_code: int | None, log: str, retries: int = 0) -> str:
    """Describe in one line why an attempt failed, and why a step with retries is not retried.

    Examples
    --------
    >>> describe_failure(64, "no such column")
    'exit code 64: no such column'
    >>> describe_failure(64, "no such column", retries=2)
    'exit code 64: no such column; not retried, because it would fail again'
    """
    is_final = retries > 0 and classify_failure(exit_code, log) == INPUT
    end = "; not retried, because it would fail again" if is_final else ""
    return f"{_describe(exit_code, log)}{end}"


def _describe(exit_code: int | None, log: str) -> str:
    if exit_code is None:
        return "the process was killed and left no exit code"
    if exit_code == -signal.SIGKILL:
        return "ended by SIGKILL; the likely cause is a lack of memory"
    if exit_code < 0:
        return f"ended by {_signal_name(-exit_code)}"
    if explanation := _EXPLANATION.match(log):
        return f"exit code {exit_code}: {' '.join(explanation[1].split())[:1000]}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if lines and re.fullmatch(r"\+-{20,}", lines[-1]):
        lines = [each for line in lines if (each := _GROUP_FRAME.sub("", line, count=1))]
    last = f": {lines[-1][:300]}" if lines else ""
    return f"exit code {exit_code}{last}"


def _last_error_name(log: str) -> str:
    """Return the name of the last exception in a log."""
    candidates = _ERROR.findall(log) if "Traceback" in log or "Error" in log else []
    names = [
        name
        for name in candidates
        if name.endswith(("Error", "Exception")) or name in _INPUT_ERRORS
    ]
    return names[-1] if names else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
