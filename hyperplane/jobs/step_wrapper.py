"""``python step_wrapper.py TRACES PROGRAM ARGUMENTS...``: runs a step and writes down how it ended.

It imports next to nothing, because every step pays for it, and changes nothing that the program
sees: its environment, its arguments and its signals are those that were given. What the program
prints goes through a pipe to the log, so that a full disk does not end the program, and so that a
log has a limit.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

if __name__ == "__main__":  # without the package, whose import takes longer than all of this
    sys.path.append(f"{os.path.dirname(os.path.dirname(__file__))}/engines")  # noqa: PTH120
    from running_system import running_system, started  # type: ignore[import-not-found]
else:
    from hyperplane.engines.running_system import running_system, started

#: What Python ignores, or whoever started it; programs expect the usual.
_DEFAULT_SIGNALS = ("SIGINT", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGHUP", "SIGTERM")
_END_SIGNALS = ("SIGINT", "SIGHUP", "SIGTERM")
#: Suffix of the file with what the log begins with.
PREFACE_SUFFIX = ".preface"
#: The variable with the most bytes of a log.
LOG_LIMIT_VARIABLE = "HYPERPLANE_JOB_LOG_LIMIT"
#: Bytes of an exit code in its file, whatever it is: they are reserved before the program starts.
_EXIT_CODE_BYTES = 16
#: Bytes that are read of the pipe at once, and kept while the disk is full.
_BLOCK_BYTES, _BUFFER_BYTES = 1 << 16, 1 << 20
#: Seconds between tries to write on a full disk, and that the end of a log is tried for.
_RETRY_SECONDS, _FLUSH_SECONDS = 0.5, 5.0


def run(traces: str, argv: list[str]) -> int:
    """Run a program to its end; its exit code, negative for a signal."""
    asked: list[int] = []
    for name in _END_SIGNALS:  # we are the last to end
        signal.signal(getattr(signal, name), lambda number, frame: asked.append(number))
    # A program that has ended must not run again because the disk is full by then.
    if not _reserve_files(traces, asked):
        return -asked[0]
    outer, inner = os.pipe()
    ended, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    child = os.fork()
    if child == 0:
        _exec_program(argv, inner)
    os.close(inner)
    log = StepLog(f"{traces}.log", _read_log_limit())
    log.write(_read_missing_preface(traces))
    sources, code = [outer, ended], None
    while code is None:
        ready = select.select(sources, [], [], _RETRY_SECONDS if log.has_pending else None)[0]
        if ended in ready:
            os.read(ended, _BLOCK_BYTES)
        block = os.read(outer, _BLOCK_BYTES) if outer in ready else b""
        if outer in ready and not block:  # no process has it open for writing
            sources.remove(outer)
        log.write(block)
        pid, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if pid else None
    more = outer in sources and _drain_pipe(outer, log)
    _write_exit_code(traces, code, asked)
    if more:
        _fork_log_writer(outer, log)
    deadline = time.monotonic() + _FLUSH_SECONDS
    while log.has_pending and not asked and time.monotonic() < deadline:
        time.sleep(_RETRY_SECONDS)
        log.write(b"")
    return code


class StepLog:
    """Standard output, which is the log: kept below a limit, and patient with a full disk.

    Beyond the limit its first quarter and about its last quarter stay.

    Parameters
    ----------
    path : str
        The file; without it there is no limit.
    limit : int
        The most bytes; 0 for no limit.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._limit, self.file = limit, 2
        self._head, self._omitted = 0, 0
        self._waiting, self._lost = b"", 0
        try:
            self.file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if not os.path.samestat(os.fstat(self.file), os.fstat(1)):
                self._limit = 0
        except OSError:
            self._limit = 0

    @property
    def has_pending(self) -> bool:
        """Whether there is something that could not be written yet."""
        return bool(self._waiting)

    def write(self, block: bytes) -> None:
        """Write a block; what a full disk does not take is kept, the last of it, for later."""
        block = self._waiting + block
        try:
            if self._lost:
                said = f"\n[hyperplane: {self._lost} bytes are left out: the disk was full]\n"
                os.write(1, said.encode())
                self._lost = 0
            while block:
                block = block[os.write(1, block) :]
            self._cut()
        except OSError:
            self._lost += max(0, len(block) - _BUFFER_BYTES)
        self._waiting = block[-_BUFFER_BYTES:]

    def _cut(self) -> None:
        """Take out the middle of a log that is longer than the limit."""
        size = os.fstat(self.file).st_size if self._limit else 0
        if size <= self._limit:
            return
        if not self._head:
            part = os.pread(self.file, self._limit // 4, 0)
            self._head = part.rfind(b"\n") + 1 or len(part)
        place = size - self._limit // 4
        line = os.pread(self.file, _BLOCK_BYTES, place).find(b"\n") + 1
        place += line if place + line < size else 0
        # What was said the last time lies in between, and goes with it.
        self._omitted += place - self._head - len(self._said() if self._omitted else b"")
        end = self._head + os.pwrite(self.file, self._said(), self._head)
        while block := os.pread(self.file, _BLOCK_BYTES, place):
            place += len(block)
            end += os.pwrite(self.file, block, end)
        os.ftruncate(self.file, end)
        # Slurm's own words go through another copy of the same descriptor.
        os.lseek(1, end, os.SEEK_SET)

    def _said(self) -> bytes:
        # The same length each time.
        words = f"[hyperplane: {self._omitted:>15} bytes are left out: hyperplane.jobs.log_limit]"
        return f"\n{words}\n".encode()


def _read_missing_preface(traces: str) -> bytes:
    """The preface of the log, unless the log begins with it: Slurm empties a log."""
    try:
        with open(f"{traces}{PREFACE_SUFFIX}", "rb") as file, open(f"{traces}.log", "rb") as log:  # noqa: PTH123
            preface = file.read()
            return b"" if log.read(len(preface)) == preface else preface
    except OSError:  # most logs have none
        return b""


def _read_log_limit() -> int:
    told = os.environ.get(LOG_LIMIT_VARIABLE, "")
    return int(told) if told.isdigit() else 0


def _exec_program(argv: list[str], output: int) -> None:
    """Be the program, in a new process."""
    signal.set_wakeup_fd(-1)
    for name in (*_DEFAULT_SIGNALS, "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell, and what the user asked for
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _drain_pipe(outer: int, log: StepLog) -> bool:
    """Write what is in the pipe; whether another process has the pipe and may print more."""
    while select.select([outer], [], [], 0)[0]:
        block = os.read(outer, _BLOCK_BYTES)
        if not block:
            return False
        log.write(block)
    return True


def _fork_log_writer(outer: int, log: StepLog) -> None:
    """Go on with the log in another process, for a program that outlives the step."""
    if os.fork():
        return
    os.setsid()
    signal.set_wakeup_fd(-1)
    for name in _END_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    # All but these; among the others is the lock, which says that the step runs.
    low, high = sorted((outer, log.file))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))
    while block := os.read(outer, _BLOCK_BYTES):
        log.write(block)
    os._exit(0)


def _reserve_files(traces: str, asked: list[int]) -> bool:
    """Take room for what must be written at the end; False when the step shall end before."""
    while not asked:
        try:
            _write_atomically(
                f"{traces}.pid", f"{os.getpid()} {started(os.getpid())} {running_system()}"
            )
            with open(f"{traces}.exit.draft", "w") as draft:  # noqa: PTH123
                draft.write(" " * _EXIT_CODE_BYTES)
            return True
        except OSError as error:
            if not _is_disk_full(error):
                os.write(2, f"{error.filename}: {error.strerror}\n".encode(errors="replace"))
                return True
            time.sleep(_RETRY_SECONDS)
    return False


def _write_exit_code(traces: str, code: int, asked: list[int]) -> None:
    """Write the exit code down, into the room that is reserved for it."""
    draft = f"{traces}.exit.draft"
    while True:
        try:
            number = os.open(draft, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.write(number, str(code).ljust(_EXIT_CODE_BYTES).encode())
            finally:
                os.close(number)
            os.replace(draft, f"{traces}.exit")  # noqa: PTH105
            return
        except OSError as error:
            # File systems that never write in place may have no room after all.
            if asked or not _is_disk_full(error):
                return  # whoever waits for us has the exit code, too
            time.sleep(_RETRY_SECONDS)


def _is_disk_full(error: OSError) -> bool:
    return error.errno in (28, 122)  # no room on the disk, or for this user


def _write_atomically(path: str, text: str) -> None:
    """A file that is there with all of its text or not at all."""
    with open(f"{path}.draft", "w") as draft:  # noqa: PTH123
        draft.write(text)
    os.replace(f"{path}.draft", path)  # noqa: PTH105


if __name__ == "__main__":
    _code = run(sys.argv[1], sys.argv[2:])
    os._exit(_code if _code >= 0 else 128 - _code)
