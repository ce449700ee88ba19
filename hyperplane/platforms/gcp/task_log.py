"""Logs of containers of jobs in Cloud Logging."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hyperplane.platforms.gcp.errors import unreadable_answer
from hyperplane.platforms.gcp.job_status import parse_time
from hyperplane.platforms.gcp.session import GcpSession

#: Maximum entries of one page.
_PAGE = 1000
#: The request, in errors.
_ACTION = "logging entries.list"


class LogSource(NamedTuple):
    """Which entries are lines of containers, and of which job.

    Parameters
    ----------
    filter : str
        Condition of the lines of all containers.
    job_label : tuple of str
        Path in an entry of the label with the job.
    max_jobs : int
        Maximum jobs of one request: its filter has at most 20,000 characters.
    """

    filter: str
    job_label: tuple[str, ...]
    max_jobs: int


#: The machines of a custom job; Vertex AI itself writes as "service".
VERTEX_LOGS = LogSource(
    'resource.type="ml_job" AND resource.labels.task_name:"workerpool"',
    ("resource", "labels", "job_id"),
    150,
)
#: The output of the containers of Cloud Run jobs; it writes about them to other logs.
CLOUD_RUN_LOGS = LogSource(
    'resource.type="cloud_run_job" AND logName:("run.googleapis.com%2Fstdout" OR '
    '"run.googleapis.com%2Fstderr")',
    ("labels", "run.googleapis.com/execution_name"),
    100,
)


class LogPosition(NamedTuple):
    """Label of a job, and since when entries were received that are read; all if it is empty."""

    job: str
    since: str = ""


class LogEntry(NamedTuple):
    """One line of a log.

    Parameters
    ----------
    job : str
        Label of the job.
    id : str
        Id of the entry, which is unique in a log for a time.
    received : float
        When Cloud Logging received it, in seconds since 1970; 0 if unknown. The program may have
        given the entry any other time.
    replica : str
        Name of the machine, such as ``"workerpool0-0"``; empty if it has none.
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


def read_page(
    session: GcpSession, source: LogSource, positions: Sequence[LogPosition], token: str
) -> LogEntryPage:
    """Return the next entries of the logs of at most ``source.max_jobs`` jobs, by their own times.

    Cloud Logging offers no other order, so that a later page may have entries received earlier.
    Sends one request; ``token`` is that of the page, empty for the first one. Raises GcpError.
    """
    request: dict[str, Any] = {
        "resourceNames": [f"projects/{session.project()}"],
        "filter": build_filter(source, positions),
        "orderBy": "timestamp asc",
        "pageSize": _PAGE,
    }
    if token:
        request["pageToken"] = token
    answer = session.call("logging", "entries.list", body=request)
    try:
        entries = [_read_entry(source, entry) for entry in answer.get("entries", [])]
    except AttributeError as error:
        raise unreadable_answer(_ACTION, error) from error
    return LogEntryPage(entries, answer.get("nextPageToken", ""))


def build_filter(source: LogSource, positions: Sequence[LogPosition]) -> str:
    """Return the filter of a request for the entries of jobs after positions.

    Examples
    --------
    >>> positions = [LogPosition("7", "2026-05-18T00:00:00Z")]
    >>> build_filter(VERTEX_LOGS, positions)  # doctest: +NORMALIZE_WHITESPACE
    'resource.type="ml_job" AND resource.labels.task_name:"workerpool"
     AND ((resource.labels.job_id="7" AND receiveTimestamp>="2026-05-18T00:00:00Z"))'
    """
    label = ".".join(part if part.isidentifier() else f'"{part}"' for part in source.job_label)
    jobs = " OR ".join(f"({_build_clause(label, position)})" for position in positions)
    return f"{source.filter} AND ({jobs})"


def _build_clause(label: str, position: LogPosition) -> str:
    clause = f'{label}="{position.job}"'
    return f'{clause} AND receiveTimestamp>="{position.since}"' if position.since else clause


def _read_entry(source: LogSource, entry: dict[str, Any]) -> LogEntry:
    job: Any = entry
    for name in source.job_label:
        job = job.get(name, {})
    replica = entry.get("resource", {}).get("labels", {}).get("task_name", "")
    line = "\n".join(_read_texts(entry)).removesuffix("\n")
    unique = str(entry.get("insertId") or f"{entry.get('timestamp', '')} {line}")
    received = parse_time(entry.get("receiveTimestamp"), _ACTION)
    return LogEntry(job if isinstance(job, str) else "", unique, received, str(replica), line)


def _read_texts(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the text of an entry, which is a line, a structured message, or another JSON object."""
    if "textPayload" in entry:
        yield str(entry["textPayload"])
    elif payload := entry.get("jsonPayload", {}):
        yield str(payload["message"]) if "message" in payload else json.dumps(payload)
