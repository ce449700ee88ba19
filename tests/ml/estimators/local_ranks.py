"""Ranks of estimators in forked processes of one server process, which has imported PyTorch.

Starting a gang takes seconds, of which most are imports; here it takes a tenth of one. What a gang
adds is tested in ``test_torch_estimator.py`` and ``tests/clusters``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import cloudpickle

from hyperplane.core.permanent_errors import is_permanent
from hyperplane.errors import GangFailed


class RankServer:
    """Client of the server process; an object replaces the function ``gang``."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __call__(
        self, client, function, n, *args, data=None, checkpoints=None, max_retries=0, logs=True
    ):
        """Run the function in n processes, as ``gang`` does, and return their results."""
        pieces = [()] * n
        if data is not None:
            values = client.gather(list(data))
            size = len(values) // n
            pieces = [(values[size * rank : size * (rank + 1)],) for rank in range(n)]
        for attempt in range(max_retries + 1):
            calls = [cloudpickle.dumps((function, (*piece, *args))) for piece in pieces]
            request = {"calls": calls, "checkpoints": checkpoints, "attempt": attempt}
            _send(self._process.stdin, request)
            kind, content = _receive(self._process.stdout)
            if kind == "results":
                return [pickle.loads(each) for each in content]
            error = pickle.loads(content[1]) if content[1] else None
            if is_permanent(error):
                break
        raise GangFailed(f"{content[0]} (after {attempt} restarts)") from error

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        """End the server."""
        self._process.kill()
        self._process.communicate()


def _send(stream, content):
    message = pickle.dumps(content)
    stream.write(struct.pack("Q", len(message)) + message)
    stream.flush()


def _receive(stream):
    head = stream.read(8)
    return pickle.loads(stream.read(struct.unpack("Q", head)[0])) if head else None


def _serve():
    import torch._dynamo
    import torch.utils.data  # noqa: F401

    import hyperplane.ml.estimators.torch_program  # noqa: F401

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while request := _receive(sys.stdin.buffer):
        with tempfile.TemporaryDirectory() as folder:
            _send(answers, _run(request, Path(folder)))


def _run(request, folder):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    calls, ranks = request["calls"], {}
    for rank, call in enumerate(calls):
        environment = {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": len(calls),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "HYPERPLANE_RESTART_COUNT": request["attempt"],
            "HYPERPLANE_CHECKPOINTS": request["checkpoints"] or "",
        }  # fmt: skip
        if not (pid := os.fork()):
            os.environ.update({key: str(value) for key, value in environment.items()})
            os._exit(_run_rank(call, folder / str(rank)))
        ranks[pid] = rank
    failure = None
    while ranks:
        pid, status = os.wait()
        rank = ranks.pop(pid, None)
        if status and failure is None and rank is not None:
            failure = (f"rank {rank} was killed", b"")
            if (folder / f"{rank}.error").exists():
                failure = pickle.loads((folder / f"{rank}.error").read_bytes())
            for other in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
    if failure:
        return "failure", failure
    return "results", [(folder / str(rank)).read_bytes() for rank in range(len(calls))]


def _run_rank(call, file):
    try:
        function, args = pickle.loads(call)
        file.write_bytes(cloudpickle.dumps(function(*args)))
    except BaseException as error:  # noqa: BLE001 - of any program
        text = "".join(traceback.format_exception(error))
        try:
            pickled = cloudpickle.dumps(error)
        except Exception:  # noqa: BLE001
            pickled = b""
        file.with_suffix(".error").write_bytes(pickle.dumps((text, pickled)))
        return 1
    return 0


if __name__ == "__main__":
    _serve()
