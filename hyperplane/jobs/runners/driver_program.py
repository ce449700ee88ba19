"""Program of a Spark driver or of a Python shell job: run that of an attempt as a child.

AWS Glue and Amazon EMR run the text of this file with Python 3.9 or later, and have no exit codes:
it stores that of the child in the bucket, and on EMR what the child prints, too. The child is
``task_program.py``, which is an object of the bucket as well. This imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

#: Names of the arguments of the job, after which a service may pass its own.
ARGUMENTS = ("bucket", "program", "manifest", "outcome")
#: Further ones, of a process that is ended with its parent: the prefix of the objects with its
#: output, and the seconds after which it is ended, 0 for no limit.
LOG, SECONDS = "log", "seconds"
PREFIX = "--hyperplane_"
#: Variable of a container whose other processes get the signals of the first one, too; the same as
#: in ``measured_program.py``, which then does not pass them on.
GROUP_SIGNALS = "HYPERPLANE_JOB_GROUP_SIGNALS"
#: Seconds for the rest of the output, which other processes may keep open.
_OUTPUT_SECONDS = 5.0
#: Seconds from SIGTERM to SIGKILL.
_STOP_SECONDS = 10.0
#: Seconds between the objects with the output: the first pause, its growth and the longest one.
_PAUSE, _GROWTH, _LONGEST_PAUSE = 5.0, 1.2, 60.0
#: Ends the group of the child when this process is killed, which closes the standard input. It has
#: the group from the child itself. It then reads what the child prints: without a reader, SIGPIPE
#: would end a child that prints at its end.
_WATCH = """
import os, signal, sys, threading, time
seconds, output = float(sys.argv[1]), int(sys.argv[2])
def read_all():
    while os.read(output, 65536):
        pass
group = int(sys.stdin.buffer.readline() or 0)
if group and not sys.stdin.buffer.read(1):
    threading.Thread(target=read_all, daemon=True).start()
    try:
        os.killpg(group, signal.SIGTERM)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.1)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def main(arguments: list[str]) -> None:
    """Run the attempt whose manifest is an object of a bucket; raise an error if it fails."""
    parent = os.getppid()  # first, as it may end at any time
    import boto3

    given = {
        word[len(PREFIX) :]: arguments[position + 1]
        for position, word in enumerate(arguments)
        if word.startswith(PREFIX)
    }
    bucket, name = given["bucket"], given["program"]
    client = boto3.client("s3")
    content = client.get_object(Bucket=bucket, Key=name)["Body"].read()
    if hashlib.sha256(content).hexdigest() not in name:
        sys.exit(f"{name} has changed since the step was submitted")
    folder = tempfile.mkdtemp(prefix="hyperplane-program-")
    path = os.path.join(folder, "task_program.py")  # noqa: PTH118 - few imports
    with open(path, "wb") as target:  # noqa: PTH123
        target.write(content)

    def store(key: str, body: bytes) -> None:
        client.put_object(Bucket=bucket, Key=key, Body=body)

    log = OutputParts(given[LOG], store) if LOG in given else None
    words = [sys.executable, path, bucket, name, given["manifest"]]
    code = run_program(words, folder, log, parent, float(given.get(SECONDS, "0")))
    store(given["outcome"], str(code).encode())
    if code:
        # The last line of the traceback is the message of the run in the console.
        raise RuntimeError(f"the program of the step has ended with exit code {code}")


class OutputParts:
    """Stores what a program prints as numbered objects: what is new, from time to time."""

    def __init__(self, prefix: str, store: Callable[[str, bytes], None]) -> None:
        self._prefix, self._store = prefix, store
        self._new: list[bytes] = []
        self._number = 0
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, text: bytes) -> None:
        """Add a line."""
        self._new.append(text)

    def close(self) -> None:
        """Store the rest; raise an error if it cannot be stored."""
        self._closed.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        pause = _PAUSE
        while not self._closed.wait(pause):
            with contextlib.suppress(Exception):  # the next part has these lines, too
                self._write()
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    def _write(self) -> None:
        with self._lock:
            count = len(self._new)
            if count:
                self._store(f"{self._prefix}/{self._number:06}", b"".join(self._new[:count]))
                self._number += 1
                del self._new[:count]


def run_program(
    words: list[str], folder: str, log: OutputParts | None, parent: int, seconds: float
) -> int:
    """Run a program and print what it prints; return its exit code, negative for a signal.

    With ``log``, what it prints is stored there, too, and the program and all that it has started
    end with this process, with its parent, whose id is given, and after ``seconds``, unless it
    is 0.
    """
    python = os.path.join(folder, "python")  # noqa: PTH118
    with open(python, "w") as target:  # noqa: PTH123
        target.write(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    os.chmod(python, 0o755)  # noqa: PTH101, S103 - the command that steps name
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((folder, os.environ.get("PATH", os.defpath))),
        # Packages that Glue has installed for the job are on the path of this process only.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        **({GROUP_SIGNALS: "1"} if log is not None else {}),
    }
    output, end = os.pipe()
    watch = None if log is None else _start_watch(output)
    process = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=end,
        stderr=subprocess.STDOUT,
        start_new_session=log is not None,
        # Before the program begins, so that this process can be killed at any time.
        preexec_fn=None if watch is None else functools.partial(_send_group, watch),
    )
    os.close(end)
    with contextlib.suppress(ValueError):  # Glue may run this in another thread
        signal.signal(signal.SIGTERM, lambda *_: _terminate(process, whole_group=log is not None))
    copy = threading.Thread(target=_copy_output, args=(output, log), daemon=True)
    copy.start()
    code = process.wait() if watch is None else _wait_with_parent(process, watch, parent, seconds)
    copy.join(_OUTPUT_SECONDS)
    if log is not None:
        log.close()
    return code


def _start_watch(output: int) -> subprocess.Popen[bytes]:
    """Start the process that ends the group of the program after this one was killed."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _WATCH, str(_STOP_SECONDS), str(output)],
        pass_fds=[output],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _send_group(watch: subprocess.Popen[bytes]) -> None:
    """Send the watch the group of this process, which is about to become the program."""
    assert watch.stdin is not None  # noqa: S101 - a pipe
    os.write(watch.stdin.fileno(), b"%d\n" % os.getpid())


def _wait_with_parent(
    process: subprocess.Popen[bytes], watch: subprocess.Popen[bytes], parent: int, seconds: float
) -> int:
    """Wait for the end of the group of a process, ended with a parent or after some seconds."""
    until = time.monotonic() + (seconds or float("inf"))
    code = None
    while code is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(0.5)
        if code is None and (os.getppid() != parent or time.monotonic() > until):
            code = _end_group(process)
    watch.communicate(b"-")
    return code


def _terminate(process: subprocess.Popen[bytes], *, whole_group: bool) -> None:
    """Send SIGTERM to a process, or to it and all that it has started."""
    if whole_group:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()


def _end_group(process: subprocess.Popen[bytes]) -> int:
    """End a process and all of its group; return its exit code."""
    _terminate(process, whole_group=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _copy_output(output: int, log: OutputParts | None) -> None:
    """Print what comes from a pipe: Glue may have replaced ``sys.stdout``."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with open(output, "rb") as lines:
        for line in lines:
            if log is not None:
                log.add(line)
            text = line.decode(errors="replace")
            with contextlib.suppress(OSError):  # the parent has ended
                sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv)
