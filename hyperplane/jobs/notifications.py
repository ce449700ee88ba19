"""Send notifications of a job that has failed, has succeeded or is late."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hyperplane.core.errors import HyperplaneError, check
from hyperplane.core.units import format_duration
from hyperplane.jobs import email_messages, slack
from hyperplane.jobs.json_posts import PostError, find_url_faults, post
from hyperplane.jobs.store.job_records import Job, count_seconds
from hyperplane.spec.settings.jobs import EMAIL_PREFIX, JSON_PREFIX, SLACK_PREFIX, SLACK_WEBHOOK

#: Characters of the end of a log that a message contains.
MAX_TAIL = 2500
#: Version of the documents that ``json:`` targets receive.
DOCUMENT_VERSION = 1

_log = logging.getLogger(__name__)

Event = Literal["failed", "succeeded", "late"]


@dataclass(frozen=True)
class Notification:
    """What is said of a job.

    Parameters
    ----------
    job : Job
        The job, as it was stored when this happened.
    event : str
        ``"failed"``, also for a job that exceeded its time limit, ``"succeeded"`` or ``"late"``.
    log_tail : str
        The end of the log of the step that failed.
    running : tuple of str
        Steps that run, for a job that is late.
    message : str
        Text that the submission has given.
    """

    job: Job
    event: Event = "failed"
    log_tail: str = ""
    running: tuple[str, ...] = ()
    message: str = ""

    @property
    def outcome(self) -> str:
        """What has happened, after the name of the job."""
        return "is late" if self.event == "late" else self.job.status

    @property
    def title(self) -> str:
        """The job and what has happened, in one line."""
        return f"Job {' '.join(self.job.name.split())} {self.outcome}"

    @property
    def rows(self) -> dict[str, str]:
        """Labels and texts of the message's table."""
        job = self.job
        rows = {"job": job.name, "id": job.id}
        if self.message:
            rows["message"] = self.message
        if self.event == "late":
            rows["submitted"] = _format_time(job.submitted)
            if job.resumed:
                rows["resumed"] = _format_time(job.resumed)
            rows["time since"] = format_duration(time.time() - job.requested)
            rows["running"] = ", ".join(self.running) or "no step"
        else:
            rows["ended"] = _format_time(job.ended or time.time())
            if self.event == "failed":
                rows["reason"] = job.reason or job.status
            elif (seconds := count_seconds(job, time.time())) is not None:
                rows["duration"] = format_duration(seconds)
        if job.schedule:
            rows["schedule"] = job.schedule
        return {**rows, "log": f"hyperplane job logs {job.id[:8]}"}

    @property
    def tail(self) -> str:
        """The end of the log, at most :data:`MAX_TAIL` characters; empty if there is none."""
        tail = self.log_tail.strip()
        return tail if len(tail) <= MAX_TAIL else "..." + tail[-MAX_TAIL:]

    def as_dict(self) -> dict[str, Any]:
        """Return the document that ``json:`` targets receive, without parameters of the job."""
        names = ("id", "run_name", "name", "status", "reason", "schedule", "machine", "runner")
        job = {name: getattr(self.job, name) for name in names}
        times = {
            name: getattr(self.job, name) or None
            for name in ("submitted", "resumed", "started", "ended")
        }
        return {
            "version": DOCUMENT_VERSION,
            "event": self.event,
            "job": {**job, "pipeline": self.job.pipeline_name, **times},
            "running": list(self.running),
            "message": self.message,
            "log": self.tail,
        }


def notify(
    notification: Notification, environment: Mapping[str, str], targets: Iterable[str]
) -> None:
    """Send a notification to all targets.

    Waits for servers, for at most two minutes each. Errors are logged and not raised: the job must
    not be affected.

    Parameters
    ----------
    notification : Notification
        The job and what has happened.
    environment : mapping of str to str
        Environment of the submission, with the secrets that targets need.
    targets : iterable of str
        Targets as in ``hyperplane.jobs.notify``.
    """
    for target in targets:
        try:
            _send(target, notification, environment)
        except (HyperplaneError, PostError) as error:
            _warn(notification.job, target, str(error))
        except Exception as error:  # noqa: BLE001 - must not affect the job
            _warn(notification.job, target, type(error).__name__)  # its text may have a secret


def _warn(job: Job, target: str, why: str) -> None:
    _log.warning("no notification of job %s sent to %s: %s", job.id, target, why)


def _send(target: str, notification: Notification, environment: Mapping[str, str]) -> None:
    if target == SLACK_WEBHOOK:
        text = format_message(notification)
        slack.send_to_webhook(environment.get("WEBHOOK_URL", ""), text)
    elif target.startswith(SLACK_PREFIX):
        token, channel = environment.get("SLACK_TOKEN", ""), target.removeprefix(SLACK_PREFIX)
        slack.send_with_token(token, format_message(notification), channel)
    elif target.startswith(EMAIL_PREFIX):
        address, text = target.removeprefix(EMAIL_PREFIX), format_text(notification)
        email_messages.send(address, notification.title, text, environment)
    else:
        variable = target.removeprefix(JSON_PREFIX)
        url = environment.get(variable, "")
        check(find_url_faults(variable, url, shown=False))
        post(url, notification.as_dict(), {})


def format_message(notification: Notification) -> str:
    """Format the message in the markup of Slack."""
    title = f"Job *{slack.escape_markup(notification.job.name)}* {notification.outcome}"
    text = f"{title}\n{slack.format_table(notification.rows)}"
    if not notification.tail:
        return text
    return f"{text}\nThe end of the log:\n```\n{slack.escape_markup(notification.tail)}\n```"


def format_text(notification: Notification) -> str:
    """Format the message as plain text."""
    width = max(map(len, notification.rows))
    lines = [
        f"{name:<{width}}  {' '.join(text.split())}" for name, text in notification.rows.items()
    ]
    if notification.tail:
        lines += ["", "The end of the log:", "", notification.tail]
    return "\n".join([notification.title, "", *lines, ""])


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
