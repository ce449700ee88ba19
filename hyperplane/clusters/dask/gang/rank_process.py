"""Program of the process of a rank: it calls the function, and sends back the result.

The supervisor runs this file by its path with two file descriptors: one for the call, which it
keeps open as long as the process may run, and one for the answer. Standard output and standard
error are the log.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from typing import Any, BinaryIO

#: Exit code of a process whose function has raised an exception.
FAILED = 1
#: Exit code of a process whose supervisor has ended.
ABANDONED = 70


def main(call_descriptor: int, answer_descriptor: int) -> int:
    """Read a call, run it and write its answer; return the exit code."""
    own = os.getpid()
    _fork_group_watcher(call_descriptor, answer_descriptor)
    call = os.fdopen(call_descriptor, "rb")
    parent, sys.path, *log = pickle.load(call)  # noqa: S301 - from the parent process
    from hyperplane.clusters.dask.parent_death import end_with_parent

    end_with_parent(lambda: os.getppid() == parent)
    # A worker may ignore interrupts, which its child processes inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        function, args, data = pickle.load(call)  # noqa: S301 - from the parent process
        threading.Thread(target=_end_with_pipe, args=(call,), daemon=True).start()
        run = pickle.loads(function)  # noqa: S301 - from the client
        values = pickle.loads(args)  # noqa: S301 - from the client
        answer, code = _dump(run(*values) if data is None else run(data, *values)), 0
    except SystemExit as error:
        answer, code = _end_early(error, *log)
    except BaseException as error:  # noqa: BLE001 - sent to the client, which raises it
        answer, code = _describe(error, *log), FAILED
    if os.getpid() != own:  # a process that the function has forked also returns from it
        return code
    with os.fdopen(answer_descriptor, "wb") as file:
        file.write(answer)
    return code


def _fork_group_watcher(call_descriptor: int, answer_descriptor: int) -> None:
    """Fork a process that kills the group, itself included, when the worker process has ended.

    The kernel ends only this process with the worker, not the processes that the function starts.
    """
    if os.fork():
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.close(answer_descriptor)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    end = select.poll()
    end.register(call_descriptor, 0)  # only POLLHUP: the other process reads the content
    end.poll()
    os.killpg(0, signal.SIGKILL)


def _end_with_pipe(call: BinaryIO) -> None:
    """End this process when the supervisor has closed its end of the pipe."""
    call.read(1)
    os._exit(ABANDONED)


def _dump(result: Any) -> bytes:
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(result, protocol=5)
    return b"R" + pickled


def _end_early(error: SystemExit, is_printed: bool, is_last: bool) -> tuple[bytes, int]:
    """Return answer and exit code of ``sys.exit``."""
    if error.code in (None, 0):
        return _dump(None), 0
    code = error.code if isinstance(error.code, int) else FAILED
    return _describe(error, is_printed, is_last), code


def _describe(error: BaseException, is_printed: bool, is_last: bool) -> bytes:
    """Return an exception, as itself if it can be pickled, its traceback, and its mark.

    Write the traceback to the output; only its last line if the client prints the output and then
    raises an error with the traceback, because it does not start the ranks again.
    """
    import cloudpickle

    from hyperplane.core.permanent_errors import is_permanent

    # The frames of this file say nothing about the function.
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, trace))
    shown = text  # the output ends with it, as that of any program
    if is_printed and (is_last or is_permanent(error)):
        shown = "".join(traceback.format_exception_only(error))
    if isinstance(error, SystemExit):
        shown = "" if isinstance(error.code, int) else f"{error.code}\n"
    with contextlib.suppress(Exception):  # the function may have closed or replaced it
        sys.stderr.write(shown)
    try:
        pickled = cloudpickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - written by the line above
    except Exception:  # noqa: BLE001 - classes with any __reduce__
        pickled = b""
    try:
        summary = f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 - classes with any __str__
        summary = type(error).__name__
    # The attributes of errors of TensorFlow are not in their pickles.
    return b"E" + pickle.dumps((summary, text, pickled, is_permanent(error)))


if __name__ == "__main__":
    _code = main(int(sys.argv[1]), int(sys.argv[2]))
    for _stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the function may have closed or replaced it
            _stream.flush()
    # Threads of libraries, such as gloo's, must not keep the process alive or crash its end.
    os._exit(_code)
