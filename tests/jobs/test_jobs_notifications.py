"""Failure notifications of jobs."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import dask.config
import pytest
from slack_server import TOKEN, Response, serve

from hyperplane.jobs import Job, Pipeline, Step, slack
from hyperplane.jobs.notifications import MAX_TAIL, format_message, notify

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


def send(targets, job, tail, environment):
    notify(job, tail, environment, targets)


def test_a_message_has_name_id_time_reason_and_the_end_of_the_log():
    message = format_message(failed(schedule="every-night"), "Traceback\nValueError: <x> & ```y")
    for part in (
        "*nightly*", "01234567-89ab", "1970-01-02 00:00:00 UTC", "exit code 65: &lt;bad&gt;",
        "every-night", "hyperplane job logs 01234567", "ValueError: &lt;x&gt; &amp; '''y",
    ):  # fmt: skip
        assert part in message
    assert "private" not in message
    assert message.count("```") == 4


def test_a_message_has_only_the_end_of_a_long_log():
    message = format_message(failed(), "x" * 9000 + "the last line\n")
    assert "the last line\n```" in message
    assert len(message) < MAX_TAIL + 600
    assert format_message(failed(), " \n").count("```") == 2


def test_all_targets_are_notified(server, environment):
    send(["slack:#alerts", "webhook"], failed(), "oh", environment)
    assert [path for path, _, _ in server.requests] == ["/api/chat.postMessage", HOOK]
    assert server.documents[0]["channel"] == "#alerts"
    assert (
        server.documents[0]["text"] == server.documents[1]["text"] == format_message(failed(), "oh")
    )


def test_nothing_is_sent_without_targets(server, environment):
    send([], failed(), "oh", environment)
    assert server.requests == []


@pytest.mark.parametrize("target", ["mail:me", "slack:", "", "slack:#x"])
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
