"""Logs of the containers of custom jobs in Cloud Logging."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hyperplane.platforms.gcp.errors import unreadable_answer
from hyperplane.platforms.gcp.job_status import parse_time
from hyperplane.platforms.gcp.session import GcpSession

#: Maximum jobs of one request: its filter has at most 20,000 characters.
MAX_JOBS = 150
#: Maximum entries of one page.
_PAGE = 1000
#: Beginning of the names of the replicas of a job. Vertex AI itself writes as "service".
_REPLICAS = "workerpool"
#: The request, in errors.
_ACTION = "logging entries.list"


class LogPosition(NamedTuple):
    """Number of a job, and since when entries were received that are read; all if it is empty."""

    job: str
    since: str = ""


class LogEntry(NamedTuple):
    """One line of a log.

    Parameters
    ----------
    job : str
        Number of the job.
    id : str
        Id of the entry, which is unique in a log for a time.
    received : float
        When Cloud Logging received it, in seconds since 1970; 0 if unknown. The program may have
        given the entry any other time.
    replica : str
        Name of the machine, such as ``"workerpool0-0"``.
    line : str
        The text without the end of the line.
    """

    job: str
    id: str
    received: float
    replica: str
    line: str


class LogEntryPage(NamedTuple):
    """Some entries, and the token of the page after them; empty at the end."""

    entries: list[LogEntry]
    token: str


def read_page(session: GcpSession, positions: Sequence[LogPosition], token: str) -> LogEntryPage:
    """Return the next entries of the logs of at most ``MAX_JOBS`` jobs, by their own times.

    Cloud Logging offers no other order, so that a later page may have entries received earlier.
    Sends one request; ``token`` is that of the page, empty for the first one. Raises GcpError.
    """
    request: dict[str, Any] = {
        "resourceNames": [f"projects/{session.project()}"],
        "filter": build_filter(positions),
        "orderBy": "timestamp asc",
        "pageSize": _PAGE,
    }
    if token:
        request["pageToken"] = token
    answer = session.call("logging", "entries.list", body=request)
    try:
        entries = list(map(_read_entry, answer.get("entries", [])))
    except AttributeError as error:
        raise unreadable_answer(_ACTION, error) from error
    return LogEntryPage(entries, answer.get("nextPageToken", ""))


def build_filter(positions: Sequence[LogPosition]) -> str:
    """Return the filter of a request for the entries of jobs after positions.

    Examples
    --------
    >>> build_filter([LogPosition("7", "2026-05-18T00:00:00Z")])  # doctest: +NORMALIZE_WHITESPACE
    'resource.type="ml_job" AND resource.labels.task_name:"workerpool"
     AND ((resource.labels.job_id="7" AND receiveTimestamp>="2026-05-18T00:00:00Z"))'
    """
    jobs = " OR ".join(f"({each})" for each in map(_build_clause, positions))
    return f'resource.type="ml_job" AND resource.labels.task_name:"{_REPLICAS}" AND ({jobs})'


def _build_clause(position: LogPosition) -> str:
    clause = f'resource.labels.job_id="{position.job}"'
    return f'{clause} AND receiveTimestamp>="{position.since}"' if position.since else clause


def _read_entry(entry: dict[str, Any]) -> LogEntry:
    labels = entry.get("resource", {}).get("labels", {})
    line = "\n".join(_read_texts(entry)).removesuffix("\n")
    at = entry.get("timestamp", "")
    unique = str(entry.get("insertId") or f"{at} {line}")
    job, replica = (str(labels.get(name, "")) for name in ("job_id", "task_name"))
    return LogEntry(job, unique, parse_time(entry.get("receiveTimestamp"), _ACTION), replica, line)


def _read_texts(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the text of an entry, which is that of a line or of a structured message."""
    if "textPayload" in entry:
        yield str(entry["textPayload"])
    elif "message" in entry.get("jsonPayload", {}):
        yield str(entry["jsonPayload"]["message"])
