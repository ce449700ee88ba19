"""Answers of the application to errors, and of its check to requests, without a server."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import dask
import pytest
from ui_server import read

from hyperplane.core.errors import Fault
from hyperplane.errors import JobStoreError, RequestError
from hyperplane.jobs import schedules
from hyperplane.ui import application
from hyperplane.ui.access import AccessCheck
from hyperplane.ui.view import PageRequest, View

HOST = (b"host", b"127.0.0.1:8790")


def answer(app: Any, path: str = "/", *headers: tuple[bytes, bytes], **scope: Any) -> Any:
    """Return status, headers and text of the response to a request."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    request = {
        "type": "http", "method": "GET", "path": path, "query_string": b"", "http_version": "1.1",
        "headers": [HOST, *headers], "client": ("127.0.0.1", 50000), "root_path": "",
        "server": ("127.0.0.1", 8790), "scheme": "http", **scope,
    }  # fmt: skip
    with suppress(ZeroDivisionError):  # Starlette raises an unexpected error again, for the log
        asyncio.run(app(request, receive, send))
    start, *bodies = sent
    text = b"".join(each.get("body", b"") for each in bodies).decode()
    return start["status"], dict(start["headers"]), text


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Views of an application by their paths."""
    found: dict[str, Any] = {"/": lambda request: View("Overview", ("<b>",))}
    monkeypatch.setattr(application, "_VIEWS", found)
    return found


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (
            JobStoreError("/srv/<jobs>.db", "the disk is full", passing=False),
            503,
            "the disk is full",
        ),
        (RequestError([Fault("page", "<b>", "a number")]), 400, "page = <b>: expected a number"),
    ],
)
def test_errors_of_the_package_are_pages_with_their_message(
    views: dict[str, Any], error: Exception, code: int, expected: str
) -> None:
    def fail(request: PageRequest) -> View:
        raise error

    views["/x"] = fail
    status, _, text = answer(application.create_application(False, lambda: None), "/x")
    assert status == code
    assert expected in read(text).text


@pytest.mark.parametrize("path", ["/jobs/5f0c", "/jobs/5f0c/report", "/schedules"])
def test_pages_that_need_the_store_say_that_it_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(schedules, "read_installed", lambda: {"nightly": "0 6 * * * true"})
    with dask.config.set({"hyperplane.jobs.store": "postgresql://x@127.0.0.1:1/x"}):
        status, _, page = answer(application.create_application(False, lambda: None), path)
    text = read(page).text
    assert status == 503
    assert "The job store cannot be opened:" in text
    assert "hyperplane.jobs.store" in text
    assert "The request has faults" not in text


def test_an_unexpected_error_is_a_page_without_its_text(
    views: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    views["/x"] = lambda request: 1 / 0
    app = application.create_application(False, lambda: None)
    with caplog.at_level(logging.WARNING):
        status, _, text = answer(app, "/x", query_string=b"text=hunter2")
    assert status == 500
    assert "division" not in text
    assert "the terminal of hyperplane ui" in read(text).text
    assert "/x" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_part_of_a_view_that_is_no_markup_is_escaped(views: dict[str, Any]) -> None:
    _, _, text = answer(application.create_application(False, lambda: None))
    assert "&lt;b&gt;" in text


def test_cookies_of_other_servers_do_not_hide_the_cookie(views: dict[str, Any]) -> None:
    check = AccessCheck(application.create_application(False, lambda: None), "secret")
    _, headers, _ = answer(check, query_string=b"token=secret")
    own = headers[b"set-cookie"].split(b";")[0]
    others = b'username="2|1:0|10:17|8:x,=="; {"a": 1}; hyperplane_ui_8790=old; ' + own
    assert answer(check, "/", (b"cookie", others))[0] == 200
    assert answer(check, "/", (b"cookie", others.replace(b"8790", b"8791")))[0] == 401
    assert answer(check, "/", (b"cookie", own), (b"host", b"evil.example"))[0] == 403


def test_views_that_change_nothing_have_no_other_method(views: dict[str, Any]) -> None:
    app = application.create_application(True, lambda: None)
    status, _, text = answer(app, method="DELETE")
    assert status == 405
    assert "another method" in read(text).text


def test_a_lone_surrogate_of_a_damaged_record_does_not_break_a_page(views: dict[str, Any]) -> None:
    views["/"] = lambda request: View("Job \ud800", ("<b>", "\udfff"), state="\ud800: done")
    app = application.create_application(False, lambda: None)
    for headers in ((), ((b"x-hyperplane-content", b""),)):
        code, _, text = answer(app, "/", *headers)
        assert code == 200
        assert "Job " in text
