"""Send the failure notifications of a job."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from hyperplane.core.errors import Fault, HyperplaneError, RequestError
from hyperplane.jobs import slack
from hyperplane.jobs.store.job_records import Job

#: Characters of the end of a log that a message contains.
MAX_TAIL = 2500
_SLACK_PREFIX = "slack:"

_log = logging.getLogger(__name__)


def notify(job: Job, log_tail: str, environment: Mapping[str, str], targets: Iterable[str]) -> None:
    """Send notifications of a failed job.

    Waits for servers, for minutes in the worst case. Errors are logged and not raised: the job has
    already ended.

    Parameters
    ----------
    job : Job
        The job, after its end.
    log_tail : str
        The end of the log of the step that failed.
    environment : mapping of str to str
        Environment of the submission, with ``SLACK_TOKEN`` and ``WEBHOOK_URL``.
    targets : iterable of str
        Targets as in ``hyperplane.jobs.notify``: ``"slack:#channel"`` or ``"webhook"``.
    """
    text = format_message(job, log_tail)
    for target in targets:
        try:
            _send(target, text, environment)
        except HyperplaneError as error:
            _log.warning("no notification of job %s sent to %s: %s", job.id, target, error)
        except Exception as error:  # noqa: BLE001 - must not affect the job
            kind = type(error).__name__  # the error's text may contain a secret
            _log.warning("no notification of job %s sent to %s: %s", job.id, target, kind)


def _send(target: str, text: str, environment: Mapping[str, str]) -> None:
    if target == "webhook":
        slack.send_to_webhook(environment.get("WEBHOOK_URL", ""), text)
    elif target.startswith(_SLACK_PREFIX) and target != _SLACK_PREFIX:
        slack.send_with_token(
            environment.get("SLACK_TOKEN", ""), text, target.removeprefix(_SLACK_PREFIX)
        )
    else:
        allowed = "'slack:#channel' or 'webhook'"
        raise RequestError([Fault("hyperplane.jobs.notify", repr(target), allowed)])


def format_message(job: Job, log_tail: str) -> str:
    """Format the message: the job's name, id, end time and reason, and the end of its log."""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(job.ended or time.time()))
    rows = {"job": job.name, "id": job.id, "ended": at, "reason": job.reason or job.status}
    if job.schedule:
        rows["schedule"] = job.schedule
    rows["log"] = f"hyperplane job logs {job.id[:8]}"
    text = f"Job *{slack.escape_markup(job.name)}* {job.status}\n{slack.format_table(rows)}"
    tail = log_tail.strip()
    if not tail:
        return text
    cut = tail if len(tail) <= MAX_TAIL else "..." + tail[-MAX_TAIL:]
    return f"{text}\nThe end of the log:\n```\n{slack.escape_markup(cut)}\n```"
