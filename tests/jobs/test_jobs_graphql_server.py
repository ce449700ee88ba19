"""The file with the address of the GraphQL server, and the environment of programs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hyperplane.core.errors import JobStoreError
from hyperplane.jobs import graphql_server
from hyperplane.jobs.execution import step_graphql
from hyperplane.jobs.graphql_server import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    GraphqlServer,
    find_server,
    publish_server,
    without_server,
)
from hyperplane.jobs.runners.local import LocalRunner
from hyperplane.jobs.submission.submission_environment import capture_environment

FIRST, SECOND = GraphqlServer(8790, "first-token"), GraphqlServer(8791, "second-token")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(graphql_server, "jobs_folder", lambda: tmp_path)
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    return tmp_path


def test_the_file_is_private_and_removed_at_the_end(home: Path) -> None:
    assert find_server() is None
    with publish_server(FIRST) as file:
        assert file.parent == home
        assert file.stat().st_mode & 0o777 == 0o600
        document = json.loads(file.read_text())
        assert document["url"] == "http://hyperplane:first-token@127.0.0.1:8790/graphql"
        assert document["token"] == "first-token"
        assert find_server() == FIRST
    assert find_server() is None
    assert not list(home.glob("*.json"))
    assert not list(home.glob(".*"))
    assert "first-token" not in repr(FIRST)


def test_the_newest_of_the_running_servers_is_found(home: Path) -> None:
    with publish_server(SECOND) as second:
        os.utime(second, (1, 1))
        with publish_server(FIRST) as first:
            assert first != second
            assert find_server() == FIRST
        assert find_server() == SECOND
        (home / f"{graphql_server._file_prefix()}x.json").write_text("{}")
    assert find_server() is None


@pytest.mark.process
def test_the_file_of_a_killed_server_is_not_used(home: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from hyperplane.jobs import graphql_server as module\n"
        "module.jobs_folder = lambda: pathlib.Path(sys.argv[1])\n"
        "with module.publish_server(module.GraphqlServer(8792, 'third-token')):\n"
        "    print('ready', flush=True); time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(home)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        assert find_server() == GraphqlServer(8792, "third-token")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len([*home.glob("graphql-*.json")]) == 1
    assert find_server() is None
    with publish_server(FIRST) as file:
        assert [*home.glob("graphql-*.json")] == [file], "the abandoned one is removed"
        assert find_server() == FIRST


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"system": 1}',
        '{"system": "other-boot", "port": 1, "token": ""}',
        "[" * 50_000,
        "{" * 50_000,
        '{"a":' * 10_000,
        " " * 100_000 + "{}",
        "\udcff",
    ],
)
def test_a_damaged_file_and_one_of_another_boot_are_no_server(
    home: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphql_server, "is_locked", lambda file: True)
    file = home / f"{graphql_server._file_prefix()}8790.json"
    file.write_text(text, errors="surrogateescape")
    assert find_server() is None


@pytest.mark.process
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "socket", "device"])
def test_what_is_no_regular_file_is_no_server(
    home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / f"{graphql_server._file_prefix()}8791.json"
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder":
            file.mkdir()
        elif kind == "socket":
            monkeypatch.chdir(home)  # its path has at most 107 characters
            listener.bind(file.name)
        else:
            file.symlink_to("/dev/zero" if kind == "device" else home / "absent")
        with monkeypatch.context() as patched:
            patched.setattr(graphql_server, "is_locked", lambda file: True)
            assert find_server() is None
        with publish_server(FIRST):
            assert find_server() == FIRST


def test_a_folder_that_cannot_be_written_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphql_server, "jobs_folder", lambda: home / "absent")
    with pytest.raises(JobStoreError, match="cannot be written"), publish_server(FIRST):
        pass


def test_only_variables_that_this_package_has_set_are_removed() -> None:
    others = {"PATH": "/bin"}
    assert without_server({**others, **FIRST.variables}) == others
    for url in ("http://api.example/graphql", "http://hyperplane:x@127.0.0.1:1/graphql"):
        own = {**others, URL_VARIABLE: url, TOKEN_VARIABLE: "token-of-the-user"}
        assert without_server(own) == own
        without_token = {**others, URL_VARIABLE: url}
        assert without_server(without_token) == without_token


def test_a_submission_of_a_step_has_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FIRST.variables.items():
        monkeypatch.setenv(name, value)
    assert not FIRST.variables.keys() & capture_environment().environment.keys()


def test_steps_of_this_machine_get_the_running_server(home: Path) -> None:
    runner = LocalRunner({}, {})
    assert step_graphql.server_variables(runner, {}) == {}
    with publish_server(FIRST):
        assert step_graphql.server_variables(runner, {}) == FIRST.variables
        chosen = {URL_VARIABLE: "http://api.example/graphql"}
        assert step_graphql.server_variables(runner, chosen) == {}
        assert step_graphql.server_variables(object(), {}) == {}, "it cannot connect"
        assert step_graphql.find_tokens(runner, SECOND.variables) == {"first-token", "second-token"}
        assert step_graphql.find_tokens(object(), SECOND.variables) == set()
    assert step_graphql.find_tokens(runner, {}) == set()
    assert os.environ.get(URL_VARIABLE) is None
