"""Messages to Slack and addresses of services, against a server in this process."""

import socket
import threading
import traceback
from types import SimpleNamespace

import dask.config
import pytest
from job_cases import wait_until
from slack_server import TOKEN, Response, serve

from hyperplane import utils
from hyperplane.errors import RequestError
from hyperplane.jobs import json_posts, slack
from hyperplane.jobs.slack import SlackError

HOOK = "/services/T0/B0/s3cret-hook"
SECRETS = (TOKEN, "s3cret")


@pytest.fixture
def server(monkeypatch):
    slack_server, end = serve()
    monkeypatch.setenv("SLACK_TOKEN", TOKEN)
    monkeypatch.setenv("WEBHOOK_URL", slack_server.url + HOOK)
    monkeypatch.setenv("no_proxy", "*")
    with dask.config.set({"hyperplane.slack.api": slack_server.url + "/api"}):
        yield slack_server
    end()


@pytest.fixture
def no_pauses(monkeypatch):
    """Skip the pauses before retries, and return their requested lengths."""
    pauses = []
    # Patched only in this module: other threads sleep, too.
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=pauses.append))
    return pauses


def refused(call, *arguments):
    """The error of a call; checks that neither it nor its causes contain a secret."""
    with pytest.raises((SlackError, RequestError)) as caught:
        call(*arguments)
    whole = "".join(traceback.format_exception(caught.value))
    assert not any(secret in whole for secret in SECRETS)
    return str(caught.value)


def test_a_message_goes_to_a_channel_with_the_token(server):
    utils.SlackHelper().post_message("done: *all* ü", "#data")
    ((path, headers, document),) = server.requests
    assert path == "/api/chat.postMessage"
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert document == {"channel": "#data", "text": "done: *all* ü"}


def test_the_configured_channel_is_the_default(server):
    assert "hyperplane.slack.channel" in refused(utils.SlackHelper().post_message, "x")
    with dask.config.set({"hyperplane.slack.channel": "#all"}):
        utils.SlackHelper().post_message("x")
    assert server.documents == [{"channel": "#all", "text": "x"}]


def test_a_message_goes_through_the_webhook(server):
    utils.post_message("done")
    utils.post_message("done", channel="#other")
    assert [path for path, _, _ in server.requests] == [HOOK, HOOK]
    assert server.documents == [{"text": "done"}, {"text": "done", "channel": "#other"}]
    assert "Authorization" not in server.requests[0][1]


def test_a_table_is_aligned_in_a_block_of_code(server):
    utils.post_table({"rows": 1200, "a longer <label>": "x & y\nz"})
    utils.SlackHelper().post_table({"day": ["mon"], "rows": [9]}, channel="#data")
    first, second = (document["text"] for document in server.documents)
    assert first.splitlines() == [
        "```", "rows              1200", "a longer &lt;label&gt;  x &amp; y z", "```",
    ]  # fmt: skip
    assert second.splitlines() == ["```", "day  rows", "---  ----", "mon     9", "```"]


@pytest.mark.parametrize("values", [{}, {"a": []}, {"a": [1, 2], "b": ["x"]}, {"a": "```"}])
def test_empty_and_uneven_tables_are_one_code_block(values):
    lines = slack.format_table(values).splitlines()
    assert (lines[0], lines[-1]) == ("```", "```")
    assert "```" not in "".join(lines[1:-1])


def test_a_wrong_token_is_reported_and_not_shown(server, monkeypatch):
    monkeypatch.setenv("SLACK_TOKEN", "xoxb-s3cret-wrong")
    assert "invalid_auth" in refused(utils.SlackHelper().post_message, "x", "#data")
    assert len(server.requests) == 1


def test_missing_settings_are_reported(monkeypatch):
    monkeypatch.delenv("SLACK_TOKEN", raising=False)
    monkeypatch.delenv("WEBHOOK_URL", raising=False)
    assert "SLACK_TOKEN" in refused(utils.SlackHelper)
    assert "WEBHOOK_URL" in refused(utils.post_message, "x")


@pytest.mark.parametrize(
    "url",
    [
        "hooks.slack.com/s3cret", "ftp://x/s3cret", "http://example.com/s3cret", "https:///s3cret",
        "https://u:s3cret@x/", "https://x/s3cret\r\nHost: y", "https://x:s3cret/", "https://[x/s3cret",
    ],
)  # fmt: skip
def test_an_invalid_webhook_is_refused_and_not_shown(url, monkeypatch):
    monkeypatch.setenv("WEBHOOK_URL", url)
    assert "https://" in refused(utils.post_message, "x")


@pytest.mark.parametrize("token", ["s3cret\n", "s3cret ü", "s3cret x"])
def test_an_invalid_token_is_refused_and_not_shown(token, server, monkeypatch):
    monkeypatch.setenv("SLACK_TOKEN", token)
    assert "a one-line token" in refused(utils.SlackHelper().post_message, "x", "#data")
    assert server.requests == []


def test_the_delay_requested_by_the_server_is_respected(server, no_pauses):
    server.responses = [
        Response(429, headers={"Retry-After": "7"}),
        Response(429, headers={"Retry-After": "999"}),
    ]
    utils.post_message("x")
    assert no_pauses == [7.0, json_posts.MAX_WAIT]
    assert len(server.requests) == 3


@pytest.mark.parametrize("code", [500, 502, 503, 504, 429])
def test_transient_errors_are_retried_and_then_raised(code, server, no_pauses):
    server.responses = [Response(code, "s3cret") for _ in range(9)]
    message = refused(utils.post_message, "x")
    assert message == f"127.0.0.1 did not accept the message in 4 attempts: HTTP {code}"
    assert len(server.requests) == json_posts.MAX_ATTEMPTS
    assert len(no_pauses) == json_posts.MAX_ATTEMPTS - 1
    assert all(0 < pause <= json_posts.MAX_WAIT for pause in no_pauses)


@pytest.mark.parametrize("code", [400, 403, 404, 410])
def test_permanent_errors_are_raised_without_retries(code, server, no_pauses):
    server.responses = [Response(code, "invalid_payload s3cret")]
    assert f"HTTP {code}" in refused(utils.post_message, "x")
    assert (len(server.requests), no_pauses) == (1, [])


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(code, server):
    server.responses = [Response(code, headers={"Location": f"{server.url}/elsewhere"})]
    message = refused(utils.SlackHelper().post_message, "x", "#data")
    assert "redirects are not followed" in message
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", ["ok", "[]", "", '{"ok": "true"}', "null"])
def test_a_response_that_is_not_from_slack_is_an_error(body, server):
    server.responses = [Response(body=body)]
    refused(utils.SlackHelper().post_message, "x", "#data")


def test_a_request_without_a_response_is_not_retried(server, monkeypatch):
    monkeypatch.setattr(json_posts, "TIMEOUT", 0.3)
    released = threading.Event()
    server.responses = [Response(released=released), Response(released=released)]
    try:
        assert "may have arrived" in refused(utils.post_message, "x")
        wait_until(lambda: server.requests)  # the server may be slower than its client is patient
    finally:
        released.set()
    assert len(server.requests) == 1


def test_a_refused_connection_is_retried_and_then_raised(no_pauses, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    # Kept open, so that no other program listens there.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        monkeypatch.setenv("WEBHOOK_URL", f"http://127.0.0.1:{port}{HOOK}")
        assert "no connection (ConnectionRefusedError)" in refused(utils.post_message, "x")
    assert len(no_pauses) == 3


def test_messages_are_truncated_to_the_limit_of_slack(server):
    utils.post_message("x" * 50_000)
    text = server.documents[0]["text"]
    assert (len(text), text[-3:]) == (40_000, "...")


def test_the_address_of_a_service():
    usual = "http://model-a.hyperplane-pipelines.svc.cluster.local:8787"
    assert utils.get_service_url("model-a") == usual
    services = {"model-a": "https://models.example/a"}
    with dask.config.set({"hyperplane.services.addresses": services}):
        assert utils.get_service_url("model-a") == "https://models.example/a"
        assert utils.get_service_url("b").startswith("http://b.")
    with dask.config.set({"hyperplane.services.url": "http://{name}.local"}):
        assert utils.get_service_url("model_inference_endpoint") == (
            "http://model_inference_endpoint.local"
        )
    with dask.config.set({"hyperplane.services.url": "http://x"}), pytest.raises(RequestError):
        utils.get_service_url("a")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a@b", "a:1", "../x", None, 3, ["a"]])
def test_an_invalid_name_of_a_service_is_refused(name):
    with pytest.raises(RequestError, match="letters, digits"):
        utils.get_service_url(name)


def test_the_old_name_of_the_error_is_accepted_with_a_warning():
    with pytest.warns(FutureWarning, match="renamed to SlackError"):
        assert slack.NotSent is slack.SlackError
    assert not hasattr(slack, "Sent")
