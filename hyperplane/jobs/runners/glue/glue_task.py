"""Script of a Glue job: run the program of an attempt as a child, and store its exit code.

Glue runs the text of this file with Python 3.9 or later, and has no exit codes. The child is
``task_program.py``, which is an object of the bucket as well. This imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading

#: Names of the arguments of the job, after which Glue may pass its own.
ARGUMENTS = ("bucket", "program", "manifest", "outcome")
PREFIX = "--hyperplane_"
#: Seconds for the rest of the output, which other processes may keep open.
_OUTPUT_SECONDS = 5.0


def main(arguments: list[str]) -> None:
    """Run the attempt whose manifest is an object of a bucket; raise an error if it fails."""
    import boto3

    bucket, program, manifest, outcome = (
        arguments[arguments.index(PREFIX + name) + 1] for name in ARGUMENTS
    )
    client = boto3.client("s3")
    content = client.get_object(Bucket=bucket, Key=program)["Body"].read()
    if hashlib.sha256(content).hexdigest() not in program:
        sys.exit(f"{program} has changed since the step was submitted")
    folder = tempfile.mkdtemp(prefix="hyperplane-program-")
    path = os.path.join(folder, "task_program.py")  # noqa: PTH118 - few imports
    with open(path, "wb") as target:  # noqa: PTH123
        target.write(content)
    code = run_program([sys.executable, path, bucket, program, manifest], folder)
    client.put_object(Bucket=bucket, Key=outcome, Body=str(code).encode())
    if code:
        # The last line of the traceback is the message of the run in the console.
        raise RuntimeError(f"the program of the step has ended with exit code {code}")


def run_program(words: list[str], folder: str) -> int:
    """Run a program and print what it prints; return its exit code, negative for a signal."""
    python = os.path.join(folder, "python")  # noqa: PTH118
    with open(python, "w") as target:  # noqa: PTH123
        target.write(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    os.chmod(python, 0o755)  # noqa: PTH101, S103 - the command that steps name
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((folder, os.environ.get("PATH", os.defpath))),
        # Packages that Glue has installed for the job are on the path of this process only.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with contextlib.suppress(ValueError):  # Glue may run this in another thread
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    copy = threading.Thread(target=_copy_output, args=(process,), daemon=True)
    copy.start()
    code = process.wait()
    copy.join(_OUTPUT_SECONDS)
    return code


def _copy_output(process: subprocess.Popen[bytes]) -> None:
    """Print the output of a process: Glue may have replaced ``sys.stdout``."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in process.stdout or ():
        text = line.decode(errors="replace")
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv)
