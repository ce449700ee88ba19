"""Which requests a server of the page answers."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from job_cases import wait_until
from typer.testing import CliRunner
from ui_server import LIMIT, UiServer, read
from users import as_other_user

from hyperplane.cli import app
from hyperplane.ui import access
from hyperplane.ui import server as server_module
from hyperplane.ui.server import opening_browser

pytestmark = pytest.mark.process


@pytest.mark.slow
def test_the_first_address_sets_a_cookie_and_continues_without_the_token(
    start_server: Callable[..., UiServer],
) -> None:
    server = start_server()
    response = server.login()
    assert response.code == 303
    assert response.headers["location"] == "/"
    cookie = response.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert server.token not in cookie, "the cookie does not disclose the token"
    assert cookie.startswith(f"hyperplane_ui_{server.port}="), "ports do not separate cookies"
    assert server.get("/").title == "Overview"
    assert server.end() == (0, "", "")


def test_path_and_query_of_the_first_address_are_kept(server: UiServer) -> None:
    response = server.request(f"/jobs?token={server.token}&status=done&text=a%26b", cookie=None)
    assert response.headers["location"] == "/jobs?status=done&text=a%26b"
    response = server.request(f"//evil.example/a?token={server.token}", cookie=None)
    assert response.headers["location"] == "/evil.example/a"


def test_a_link_of_another_site_is_continued_by_a_page_of_this_site(server: UiServer) -> None:
    # After a redirect the browser would not send a cookie that is SameSite=Strict.
    response = server.request(
        f"/jobs?token={server.token}", cookie=None, sec_fetch_site="cross-site",
        sec_fetch_mode="navigate",
    )  # fmt: skip
    assert response.code == 200
    assert "set-cookie" in response.headers
    refresh = read(response.text).root.find(".//meta[@http-equiv]")
    assert refresh.get("content") == "0; url=/jobs"


@pytest.mark.parametrize("path", ["/", "/jobs", "/style.css", "/live.js", "/no-page", "/size"])
@pytest.mark.parametrize("cookie", [None, "hyperplane_ui_{port}=x", "other=1", "a;;=b"])
def test_without_the_cookie_nothing_is_shown(
    server: UiServer, path: str, cookie: str | None
) -> None:
    response = server.request(path, cookie=cookie and cookie.format(port=server.port))
    assert response.code == 401
    assert "hyperplane ui has printed" in response.text
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("token", ["", "x", "ü", "{token}x"])
def test_another_token_is_refused(server: UiServer, token: str) -> None:
    given = token.format(token=server.token).encode().decode("latin-1")
    quoted = "".join(f"%{ord(each):02X}" for each in given)
    response = server.request(f"/?token={quoted}")
    assert response.code == 403, "even with the cookie"
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "0.0.0.0:{port}",
        "[::2]",
        "[",
        "127.0.0.1@evil.example",
        "evil.example@127.0.0.1",
        "127.0.0.1:{port}x",
    ],
)
def test_another_host_is_refused(server: UiServer, host: str) -> None:
    for path in ("/", f"/?token={server.token}"):
        response = server.request(path, host=host.format(port=server.port))
        assert response.code == 403
        assert "set-cookie" not in response.headers


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:9999", "LOCALHOST"])
def test_names_of_the_loopback_address_are_hosts(server: UiServer, host: str) -> None:
    assert server.request("/pools", host=host.format(port=server.port)).code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:{port}"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"},
    ],
)
def test_pages_of_other_origins_are_refused(server: UiServer, headers: dict[str, str]) -> None:
    given = {name: value.format(port=server.port) for name, value in headers.items()}
    for method in ("GET", "POST"):
        assert server.request("/jobs", method, **given).code == 403


def test_a_form_needs_an_origin_and_the_cookie(acting_server: UiServer) -> None:
    path = "/jobs/latest/cancel"
    assert acting_server.request(path, "POST").code == 403, "no origin"
    own = acting_server.origin
    assert acting_server.request(path, "POST", origin=own, cookie=None).code == 401
    other = "http://localhost:1"
    assert acting_server.request(path, "POST", origin=other).code == 403
    assert acting_server.request(path, "POST", origin=own).code == 404, "there is no job"
    with_token = f"{path}?token={acting_server.token}"
    assert acting_server.request(with_token, "POST", origin=own, cookie=None).code == 401
    assert acting_server.request(path).code == 405, "a link changes nothing"


def test_responses_forbid_scripts_frames_and_caches(server: UiServer) -> None:
    refused = server.request("/", cookie=None)
    for response in (server.request("/"), server.request("/no-page"), refused):
        headers = response.headers
        policy = dict(each.strip().split(" ", 1) for each in
                      headers["content-security-policy"].split(";"))  # fmt: skip
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "http" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_connections_of_another_user_are_closed_and_do_not_count(server: UiServer) -> None:
    def connect() -> str:
        opened = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(120)]
        opened[0].sendall(f"GET / HTTP/1.1\r\ncookie: {server.cookie}\r\n\r\n".encode())
        received = []
        for each in opened:
            with contextlib.suppress(ConnectionResetError):
                received.append(each.recv(1))
        return f"received {b''.join(received)!r}"

    assert as_other_user(connect) == "received b''"
    assert server.request("/").code == 200


def test_a_port_that_is_in_use_is_an_error(server: UiServer) -> None:
    result = CliRunner().invoke(app, ["ui", "--no-browser", "--port", str(server.port)])
    assert result.exit_code == 2
    assert f"--port = {server.port}: expected a free port" in result.stderr
    assert "an earlier hyperplane ui may still run" in " ".join(result.stderr.split())
    assert "nothing is served" in result.stderr
    result = CliRunner().invoke(app, ["ui", "--no-browser", "--port", "70000"])
    assert result.exit_code == 2
    assert "--port = 70000: expected a number from 1 to 65535" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("redirect", [">&-", "> /dev/full"])
def test_an_address_that_cannot_be_printed_is_an_error(redirect: str) -> None:
    if "full" in redirect and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    script = "from hyperplane.cli import main; main()"
    command = f'exec "$0" -c "{script}" ui --no-browser {redirect}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], stderr=subprocess.PIPE, text=True, timeout=LIMIT
    )
    assert done.returncode == 2, done.stderr
    assert "standard output: the address of the page cannot be written to it (" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "sqlalchemy", "strawberry"])
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = CliRunner().invoke(app, ["ui", "--no-browser"])
    assert result.exit_code == 1
    assert "pip install 'hyperplane[ui]'" in result.stderr


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that the browser gets."""
    found: list[str] = []
    monkeypatch.setenv("BROWSER", "true")
    monkeypatch.setattr("webbrowser.open", found.append)
    return found


def test_the_browser_gets_the_address_where_other_users_are_refused(
    opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "find_reason_unchecked", lambda: None)
    with opening_browser() as browse:
        browse("http://127.0.0.1:1/?token=abc")
        wait_until(lambda: opened)
    assert opened == ["http://127.0.0.1:1/?token=abc"]


def test_elsewhere_the_browser_gets_the_token_in_a_file_that_others_cannot_read(
    opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "find_reason_unchecked", lambda: "not Linux")
    with opening_browser() as browse:
        browse("http://127.0.0.1:1/?token=abc")
        wait_until(lambda: opened)
        file = Path(urlsplit(opened[0]).path)
        assert file.stat().st_mode & 0o777 == 0o600
        assert "url=http://127.0.0.1:1/?token=abc" in file.read_text()
    assert not file.exists()


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return first == second

    monkeypatch.setattr(access.hmac, "compare_digest", compare)
    assert access.is_same("secret", "secret")
    assert compared == [(b"secret", b"secret")]
