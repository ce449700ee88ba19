"""Notifications of jobs: their texts and documents, targets, errors, and when they are sent."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dask.config
import pytest
from job_cases import bash, submit_job, until_exists, wait_until
from slack_server import TOKEN, Response, serve

from hyperplane import config
from hyperplane.errors import ConfigError
from hyperplane.jobs import Job, Pipeline, Step, notifications, slack
from hyperplane.jobs.execution.job_scheduler import JobScheduler
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.notifications import (
    MAX_TAIL,
    Notification,
    format_message,
    format_text,
    notify,
)
from hyperplane.jobs.store.job_records import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    PENDING,
    TIMED_OUT,
)
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.submission.submission_environment import (
    SubmissionEnvironment,
    capture_environment,
)
from hyperplane.jobs.submission.submission_snapshot import save_snapshot
from hyperplane.jobs.supervisor import Supervisor

HOOK = "/services/s3cret-hook"


@pytest.fixture
def server(monkeypatch):
    slack_server, end = serve()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda _: None))
    with dask.config.set({"hyperplane.slack.api": slack_server.url + "/api"}):
        yield slack_server
    end()


@pytest.fixture
def environment(server):
    """The environment of the submission, not that of this process."""
    return {"SLACK_TOKEN": TOKEN, "WEBHOOK_URL": server.url + HOOK}


def failed(**more):
    step = Step(name="a", kind="command", argv=("true",))
    values = {
        "id": "01234567-89ab", "run_id": "r", "name": "nightly", "job_type": "basic",
        "status": "failed", "submitted": 1.0, "ended": 86400.0, "timeout": -1,
        "active_timeout": -1, "max_retries": 0, "tries": 1, "parameters": {"month": "private"},
        "definition": Pipeline.from_steps("p", [step]).to_json(), "machine": "m",
        "runner": "local", "python": "python3", "folder": "/nowhere",
        "reason": "step 'a' failed: exit code 65: <bad>",
    }  # fmt: skip
    return Job(**{**values, **more})


def own_records(caplog):
    """Return the log records of this package, without those of Dask's threads."""
    return [record for record in caplog.records if record.name.startswith("hyperplane.")]


def send(targets, job, tail, environment, event="failed"):
    notify(Notification(job, event, tail), environment, targets)


def message(job, tail=""):
    return format_message(Notification(job, "failed", tail))


def test_a_message_has_name_id_time_reason_and_the_end_of_the_log():
    text = message(failed(schedule="every-night"), "Traceback\nValueError: <x> & ```y")
    for part in (
        "*nightly*", "01234567-89ab", "1970-01-02 00:00:00 UTC", "exit code 65: &lt;bad&gt;",
        "every-night", "hyperplane job logs 01234567", "ValueError: &lt;x&gt; &amp; '''y",
    ):  # fmt: skip
        assert part in text
    assert "private" not in text
    assert text.count("```") == 4


def test_a_message_has_only_the_end_of_a_long_log():
    text = message(failed(), "x" * 9000 + "the last line\n")
    assert "the last line\n```" in text
    assert len(text) < MAX_TAIL + 600
    assert message(failed(), " \n").count("```") == 2


def test_all_targets_are_notified(server, environment):
    send(["slack:#alerts", "webhook"], failed(), "oh", environment)
    assert [path for path, _, _ in server.requests] == ["/api/chat.postMessage", HOOK]
    assert server.documents[0]["channel"] == "#alerts"
    assert server.documents[0]["text"] == server.documents[1]["text"] == message(failed(), "oh")


def test_nothing_is_sent_without_targets(server, environment):
    send([], failed(), "oh", environment)
    assert server.requests == []


@pytest.mark.parametrize("target", ["email:a@b.example", "json:ABSENT", "slack:#x"])
def test_a_failing_target_does_not_stop_the_others(target, server, environment, caplog):
    server.responses = (
        [Response(body='{"ok": false, "error": "no"}')] if target == "slack:#x" else []
    )
    with caplog.at_level(logging.WARNING):
        send([target, "webhook"], failed(), "oh", environment)
    assert server.requests[-1][0] == HOOK
    (record,) = own_records(caplog)
    assert "01234567-89ab" in record.getMessage()


@pytest.mark.parametrize("lost", [{}, {"SLACK_TOKEN": "xoxb-s3cret", "WEBHOOK_URL": "s3cret"}])
def test_failed_notifications_are_logged_without_secrets_and_raise_nothing(lost, server, caplog):
    server.responses = [Response(500, "s3cret") for _ in range(9)]
    with caplog.at_level(logging.WARNING):
        send(["slack:#alerts", "webhook"], failed(), "oh", lost)
    assert len(own_records(caplog)) == 2
    assert "s3cret" not in caplog.text


def test_unexpected_errors_are_logged_without_their_text(server, environment, caplog, monkeypatch):
    def slip(*_):
        raise KeyError("s3cret")

    monkeypatch.setattr(slack, "send_to_webhook", slip)
    with caplog.at_level(logging.WARNING):
        send(["webhook"], failed(), "oh", environment)
    assert "KeyError" in caplog.text
    assert "s3cret" not in caplog.text


def test_the_text_says_what_has_happened():
    text = format_text(Notification(failed(schedule="every-night"), "failed", "ValueError: <x>\n"))
    assert text.splitlines() == [
        "Job nightly failed",
        "",
        "job       nightly",
        "id        01234567-89ab",
        "ended     1970-01-02 00:00:00 UTC",
        "reason    step 'a' failed: exit code 65: <bad>",
        "schedule  every-night",
        "log       hyperplane job logs 01234567",
        "",
        "The end of the log:",
        "",
        "ValueError: <x>",
    ]
    done = failed(status="done", reason="", started=86000.0)
    text = format_text(Notification(done, "succeeded"))
    assert text.startswith("Job nightly done\n\n")
    assert "duration  6 min 40 s" in text
    late = failed(status="in progress", reason="", ended=0.0, submitted=time.time() - 7500)
    text = format_text(Notification(late, "late", running=("step 'a'", "step 'b' [3]")))
    assert text.startswith("Job nightly is late\n\n")
    assert "time since  2 h 5 min\nrunning     step 'a', step 'b' [3]" in text
    assert format_message(Notification(late, "late")).startswith("Job *nightly* is late\n```\njob")


@pytest.mark.parametrize("event", ["failed", "succeeded", "late"])
def test_the_text_of_a_submission_is_in_all_messages(event):
    notification = Notification(failed(), event, message="[prod]\n<orders>")
    assert "[prod] <orders>" in format_text(notification)
    assert "&lt;orders&gt;" in format_message(notification)
    assert notification.as_dict()["message"] == "[prod]\n<orders>"


def test_a_document_has_the_job_without_its_parameters(server, environment):
    send(["json:WEBHOOK_URL"], failed(), "x" * 9000 + "end", environment)
    ((path, headers, document),) = server.requests
    assert path == HOOK
    assert headers["Content-Type"].startswith("application/json")
    assert document.pop("log") == "..." + "x" * (MAX_TAIL - 3) + "end"
    assert document == {
        "version": 1,
        "event": "failed",
        "job": {
            "id": "01234567-89ab", "run_name": "nightly", "name": "nightly", "pipeline": "p",
            "status": "failed", "reason": "step 'a' failed: exit code 65: <bad>", "schedule": "",
            "machine": "m", "runner": "local", "submitted": 1.0, "resumed": None, "started": None,
            "ended": 86400.0,
        },
        "running": [],
        "message": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    "url", ["", "http://alerts.example/s3cret", "https://user@alerts.example/s3cret", "s3cret"]
)
def test_documents_are_not_sent_to_other_addresses_than_https(url, server, caplog):
    with caplog.at_level(logging.WARNING):
        send(["json:ALERT_URL"], failed(), "", {"ALERT_URL": url})
    assert "ALERT_URL" in caplog.text
    assert "https://" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("key", ["notify", "notify_success", "notify_late"])
@pytest.mark.parametrize(
    "target",
    [
        "mail:me",
        "slack:",
        "",
        "email:me",
        "email:a@b,c@d",
        "json:",
        "json:A B",
        "slack",
        "email:a\x01b@c",
        "email:a@b\x7f",
        "email:a@b\x85",
        "email:a\udcff@b",
    ],
)
def test_an_unknown_target_is_refused_at_the_submission(key, target):
    with (
        dask.config.set({f"hyperplane.jobs.{key}": [target]}),
        pytest.raises(ConfigError, match=rf"hyperplane\.jobs\.{key}.*json:VARIABLE"),
    ):
        config.jobs()


@pytest.fixture
def home(tmp_path):
    """A folder of jobs without a supervisor."""
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "home")}):
        yield
        open_store().close()


def store_job(*steps, **more):
    """Add a job that no supervisor knows of, and return it."""
    job = replace(new_job(Pipeline.from_steps("p", steps), max_retries=0), **more)
    Path(job.folder).mkdir(parents=True)
    with dask.config.set({"hyperplane.jobs.notify": ["json:ALERT_URL"]}):
        save_snapshot(job, {}, {})
    open_store().add(job)
    return job


def resume_in_store(job):
    """Change the record of a job as ``resume`` does."""
    reset = {"status": PENDING, "reason": "", "submitted": time.time(), "started": 0.0}
    assert open_store().update(job.id, if_status=[FAILED], **reset, ended=0.0, tries=0)


@pytest.mark.process
@pytest.mark.usefixtures("home")
def test_a_resumed_job_begins_while_its_notification_is_sent(tmp_path, monkeypatch):
    job = store_job(bash("first", f"test -e {tmp_path}/go", retries=0))
    supervisor = Supervisor(open_store(), capture_environment())
    sent, resumed = [], SubmissionEnvironment({"ALERT_URL": "of the resume"})

    def send_until_done(notification, environment, targets):
        Path(tmp_path, "go").touch()
        supervisor.submissions[job.id] = resumed
        resume_in_store(job)
        wait_until(lambda: open_store().get(job.id).status == DONE, 60)
        sent.append((notification.event, notification.job.status, [*targets]))

    monkeypatch.setattr(notifications, "notify", send_until_done)
    asyncio.run(supervisor.run())
    assert sent == [("failed", FAILED, ["json:ALERT_URL"])]
    assert open_store().get(job.id).status == DONE


@pytest.mark.process
@pytest.mark.usefixtures("home")
def test_a_job_has_the_environment_of_its_resume(monkeypatch):
    """It is received while the former run ends."""
    job = store_job(bash("first", "test $WORD = second", retries=0))
    supervisor = Supervisor(open_store(), capture_environment())
    path = {"PATH": capture_environment().environment["PATH"]}
    supervisor.receive({job.id: SubmissionEnvironment({**path, "WORD": "first"})})
    close, resumes = JobScheduler._close_runner, ["second"]

    async def resume_before(scheduler):
        if resumes:
            supervisor.receive({job.id: SubmissionEnvironment({**path, "WORD": resumes.pop()})})
            resume_in_store(job)
        await close(scheduler)

    monkeypatch.setattr(JobScheduler, "_close_runner", resume_before)
    monkeypatch.setattr(notifications, "notify", lambda *_: None)
    asyncio.run(supervisor.run())
    assert open_store().get(job.id).status == DONE


@pytest.mark.usefixtures("home")
def test_a_job_that_has_not_begun_within_its_time_limit_is_notified(monkeypatch):
    job = store_job(bash("first", "true"), submitted=time.time() - 60, timeout=20)
    sent = []
    monkeypatch.setattr(notifications, "notify", lambda *arguments: sent.append(arguments))
    supervisor = Supervisor(open_store(), capture_environment())
    supervisor.receive({job.id: SubmissionEnvironment({"ALERT_URL": "secret"})})
    asyncio.run(supervisor.run())
    ((notification, environment, targets),) = sent
    assert (notification.event, notification.job.status) == ("failed", TIMED_OUT)
    assert notification.job == open_store().get(job.id)
    assert "not started in time" in format_text(notification)
    assert (environment, targets) == ({"ALERT_URL": "secret"}, ("json:ALERT_URL",))
    asyncio.run(supervisor.run())
    assert len(sent) == 1


@pytest.mark.usefixtures("home")
def test_each_expired_job_is_notified_once_if_the_next_cannot_be_stored(monkeypatch):
    late = {"submitted": time.time() - 60, "timeout": 20}
    jobs = [store_job(bash("first", "true"), **late) for _ in range(3)]
    sent, store, calls = [], open_store(), iter(range(10))
    sender = SimpleNamespace(is_busy=False, send=lambda notice, *_: sent.append(notice.job.id))
    supervisor, update = Supervisor(store, capture_environment(), sender=sender), store.update

    def update_all_but_second(*arguments, **values):
        if next(calls) == 1:
            raise OSError(28, "No space left on device")
        return update(*arguments, **values)

    monkeypatch.setattr(store, "update", update_all_but_second)
    with pytest.raises(OSError, match="No space"):
        supervisor._end_expired_jobs()
    assert len(sent) == 1
    supervisor._end_expired_jobs()
    assert sorted(sent) == sorted(job.id for job in jobs)


def end_job(outcome, monkeypatch):
    """Run a scheduler whose job ends with an outcome; return the job and its notifications."""
    job = replace(store_job(bash("first", "true")), status=IN_PROGRESS)
    sent = []
    sender = SimpleNamespace(send=lambda notice, *_: sent.append(notice))
    scheduler = JobScheduler(open_store(), job, None, capture_environment(), sender)

    async def end():
        return outcome

    monkeypatch.setattr(scheduler, "_run_to_outcome", end)
    try:
        asyncio.run(scheduler.run())
    finally:
        scheduler.send_end_notice()
    return job, sent


@pytest.mark.usefixtures("home")
def test_a_notification_says_what_was_stored_if_the_job_is_resumed_at_once(monkeypatch):
    update = open_store().update

    def update_and_resume(job_id, **values):
        stored = update(job_id, **values)
        if values["status"] == FAILED:
            reset = {"status": PENDING, "reason": "", "started": 0.0, "ended": 0.0, "tries": 0}
            assert update(job_id, if_status=[FAILED], **reset)
        return stored

    monkeypatch.setattr(open_store(), "update", update_and_resume)
    job, (notice,) = end_job((FAILED, "step a failed"), monkeypatch)
    assert open_store().get(job.id).status == PENDING
    assert (notice.job.status, notice.job.reason) == (FAILED, "step a failed")
    assert notice.job.ended > 0


@pytest.mark.usefixtures("home")
def test_a_job_whose_store_fails_after_its_end_is_notified(monkeypatch):
    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(open_store(), "get", fail)
    _, (notice,) = end_job((FAILED, "step a failed"), monkeypatch)
    assert (notice.job.status, notice.job.reason) == (FAILED, "step a failed")


@pytest.mark.usefixtures("home")
def test_a_job_that_was_ended_meanwhile_is_not_notified_again(monkeypatch):
    update = open_store().update

    def end_before(job_id, **values):
        update(job_id, status=CANCELLED)
        return update(job_id, **values)

    monkeypatch.setattr(open_store(), "update", end_before)
    assert end_job((FAILED, "step a failed"), monkeypatch)[1] == []


@pytest.mark.process
@pytest.mark.slow
def test_a_late_job_is_notified_once_and_then_its_success(server, tmp_path, monkeypatch):
    monkeypatch.setenv("ALERT_URL", server.url + HOOK)
    targets = {
        "hyperplane.jobs.notify": ["json:ALERT_URL"],
        "hyperplane.jobs.notify_success": ["json:ALERT_URL"],
        "hyperplane.jobs.notify_late": ["json:ALERT_URL"],
        "hyperplane.jobs.late_after": "1s",
    }
    with dask.config.set(targets):
        job = submit_job(bash("first", until_exists(tmp_path / "go")))
        wait_until(lambda: server.requests)
        Path(tmp_path, "go").touch()
        job.wait(120)
        wait_until(lambda: len(server.requests) == 2)
        broken = submit_job(bash("broken", "exit 64"))
        broken.wait(120)
        wait_until(lambda: len(server.requests) == 3)
    late, done, failure = server.documents
    assert [each["event"] for each in server.documents] == ["late", "succeeded", "failed"]
    assert late["running"] == ["step 'first'"]
    assert {late["job"]["id"], done["job"]["id"]} == {job.id}
    assert (done["job"]["status"], failure["job"]["status"]) == (DONE, FAILED)
    assert failure["job"]["id"] == broken.id
    assert json.dumps(server.documents).count("ALERT_URL") == 0
