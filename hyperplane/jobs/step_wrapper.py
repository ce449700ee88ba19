"""``python step_wrapper.py PREFIX PROGRAM ARGUMENT...``: run a step, record its exit code.

``PREFIX`` is the path of the attempt's files without their suffix. The wrapper imports as little as
possible, because it runs for every step. The program gets the environment, the arguments and the
signals unchanged. Its output goes through a pipe to the log, so that a full disk does not end the
program, the size of the log can be limited, and secrets do not get into the log: a supervisor could
mask them at the end, but may be killed, and the next one may not have them.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

if __name__ == "__main__":  # without the package, whose import takes longer than this program
    sys.path.append(f"{os.path.dirname(os.path.dirname(__file__))}/platforms/local")  # noqa: PTH120
    from process_identity import running_system, start_time  # type: ignore[import-not-found]
    from process_meter import MEASURE_SECONDS, UsageMeter  # type: ignore[import-not-found]
else:
    from hyperplane.platforms.local.process_identity import running_system, start_time
    from hyperplane.platforms.local.process_meter import MEASURE_SECONDS, UsageMeter

TYPE_CHECKING = False  # without typing, which would take most of the time of the imports
if TYPE_CHECKING:
    from types import ModuleType

    from hyperplane.jobs.execution.redaction import SecretMasker

#: Signals reset to their defaults for the program: Python, or the parent, may ignore them.
_DEFAULT_SIGNALS = ("SIGINT", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGHUP", "SIGTERM")
_END_SIGNALS = ("SIGINT", "SIGHUP", "SIGTERM")
#: Suffix of the file with the first lines of the log.
PREFACE_SUFFIX = ".preface"
#: Environment variable with the maximum size of a log in bytes.
LOG_LIMIT_VARIABLE = "HYPERPLANE_JOB_LOG_LIMIT"
#: Prefix of the environment variables of all secrets of the step.
_SECRET_PREFIX = "HYPERPLANE_CUSTOM_SECRET_KEY_"  # noqa: S105 - a name, and no secret
#: Environment variable with the token of the GraphQL server.
_TOKEN_VARIABLE = "HYPERPLANE_GRAPHQL_TOKEN"  # noqa: S105 - the same
#: Environment variable with the path of the executed notebook of a notebook step.
NOTEBOOK_VARIABLE = "HYPERPLANE_JOB_NOTEBOOK"
#: Size of the exit code file in bytes, whatever the code; reserved before the program starts.
_EXIT_CODE_BYTES = 16
#: Suffix of the file with the memory and the CPU seconds of the program.
USAGE_SUFFIX = ".usage"
#: Bytes read from the pipe at once, and bytes buffered while the disk is full.
_BLOCK_BYTES, _BUFFER_BYTES = 1 << 16, 1 << 20
#: Seconds between attempts to write to a full disk, and seconds after the end of the program in
#: which such attempts continue.
_RETRY_SECONDS, _FLUSH_SECONDS = 0.5, 5.0


def run(prefix: str, argv: list[str]) -> int:
    """Run a program to its end and return its exit code, negative for a signal."""
    received: list[int] = []
    for name in _END_SIGNALS:  # the wrapper ends after the program
        signal.signal(getattr(signal, name), lambda number, frame: received.append(number))
    # Before the start: without room for its exit code, a program that has ended would run again.
    if not _reserve_files(prefix, received):
        return -received[0]
    secrets = _find_secrets()
    masker = _create_masker(secrets)  # if that fails, the program does not start
    reader, writer = os.pipe()
    wakeup_reader, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    child = os.fork()
    if child == 0:
        _exec_program(argv, writer)
    os.close(writer)
    log = StepLog(f"{prefix}.log", _read_log_limit(), masker)
    log.write(_read_missing_preface(prefix))
    meter = UsageMeter(child)
    sources, code = [reader, wakeup_reader], None
    while code is None:
        seconds = _RETRY_SECONDS if log.has_pending else MEASURE_SECONDS
        ready = select.select(sources, [], [], seconds)[0]
        meter.measure_if_due()
        if wakeup_reader in ready:
            os.read(wakeup_reader, _BLOCK_BYTES)
        block = os.read(reader, _BLOCK_BYTES) if reader in ready else b""
        if reader in ready and not block:  # no process has the pipe open for writing
            sources.remove(reader)
        log.write(block)
        pid, status, spent = os.wait4(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if pid else None
    meter.write(f"{prefix}{USAGE_SUFFIX}", spent.ru_maxrss * 1024, spent.ru_utime + spent.ru_stime)
    stays_open = reader in sources and _drain_pipe(reader, log)
    if not stays_open:
        log.end()
    _mask_notebook(secrets)
    _write_exit_code(prefix, code, received)
    if stays_open:
        _fork_log_writer(reader, log)
    deadline = time.monotonic() + _FLUSH_SECONDS
    while log.has_pending and not received and time.monotonic() < deadline:
        time.sleep(_RETRY_SECONDS)
        log.write(b"")
    return code


class StepLog:
    """The log on standard output: limited in size, and buffered while the disk is full.

    Of a longer log the beginning and the end are kept, at least about a quarter of the limit
    each. ``path`` is the log file; if standard output is another file, there is no limit.
    ``limit`` is in bytes, 0 for none. ``masker`` masks the secrets of the step, if it has any.
    """

    def __init__(self, path: str, limit: int, masker: SecretMasker | None = None) -> None:
        self._limit, self.file, self._masker = limit, 2, masker
        self._head_bytes, self._omitted_bytes = 0, 0
        self._pending, self._lost_bytes = b"", 0
        try:
            self.file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if not os.path.samestat(os.fstat(self.file), os.fstat(1)):
                self._limit = 0
        except OSError:
            self._limit = 0

    @property
    def has_pending(self) -> bool:
        """Whether some output has not been written yet."""
        return bool(self._pending)

    def write(self, block: bytes) -> None:
        """Write a block without secrets; on a full disk, buffer its end for later."""
        self._write(block if self._masker is None else self._masker.mask(block))

    def end(self) -> None:
        """Write the end of the last block, with which a secret might have begun."""
        self._write(b"" if self._masker is None else self._masker.flush())

    def _write(self, block: bytes) -> None:
        block = self._pending + block
        try:
            if self._lost_bytes:
                notice = f"\n[hyperplane: {self._lost_bytes} bytes omitted: the disk was full]\n"
                os.write(1, notice.encode())
                self._lost_bytes = 0
            while block:
                block = block[os.write(1, block) :]
            self._remove_middle()
        except OSError:
            self._lost_bytes += max(0, len(block) - _BUFFER_BYTES)
        self._pending = block[-_BUFFER_BYTES:]

    def _remove_middle(self) -> None:
        """Remove the middle of a log that exceeds the limit."""
        size = os.fstat(self.file).st_size if self._limit else 0
        if size <= self._limit:
            return
        if not self._head_bytes:
            part = os.pread(self.file, self._limit // 4, 0)
            self._head_bytes = part.rfind(b"\n") + 1 or len(part)
        tail_start = size - self._limit // 4
        line = os.pread(self.file, _BLOCK_BYTES, tail_start).find(b"\n") + 1
        tail_start += line if tail_start + line < size else 0
        # The previous notice is in the removed part.
        self._omitted_bytes += (
            tail_start - self._head_bytes - len(self._notice() if self._omitted_bytes else b"")
        )
        end = self._head_bytes + os.pwrite(self.file, self._notice(), self._head_bytes)
        while block := os.pread(self.file, _BLOCK_BYTES, tail_start):
            tail_start += len(block)
            end += os.pwrite(self.file, block, end)
        os.ftruncate(self.file, end)
        # Slurm writes its messages through another copy of the same descriptor.
        os.lseek(1, end, os.SEEK_SET)

    def _notice(self) -> bytes:
        # Of fixed length, so that the next notice can account for it.
        words = f"[hyperplane: {self._omitted_bytes:>15} bytes omitted: hyperplane.jobs.log_limit]"
        return f"\n{words}\n".encode()


def _read_missing_preface(prefix: str) -> bytes:
    """Return the preface if the log does not begin with it: Slurm truncates logs."""
    try:
        with open(f"{prefix}{PREFACE_SUFFIX}", "rb") as file, open(f"{prefix}.log", "rb") as log:  # noqa: PTH123
            preface = file.read()
            return b"" if log.read(len(preface)) == preface else preface
    except OSError:  # most logs have none
        return b""


def _read_log_limit() -> int:
    limit = os.environ.get(LOG_LIMIT_VARIABLE, "")
    return int(limit) if limit.isdigit() else 0


def _exec_program(argv: list[str], output: int) -> None:
    """Replace the new process with the program."""
    signal.set_wakeup_fd(-1)
    for name in (*_DEFAULT_SIGNALS, "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell, the program of the step
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _drain_pipe(reader: int, log: StepLog) -> bool:
    """Write what is in the pipe; return whether another process may still write to it."""
    while select.select([reader], [], [], 0)[0]:
        block = os.read(reader, _BLOCK_BYTES)
        if not block:
            return False
        log.write(block)
    return True


def _fork_log_writer(reader: int, log: StepLog) -> None:
    """Keep writing the log in another process, for a program that outlives the step."""
    if os.fork():
        return
    os.setsid()
    signal.set_wakeup_fd(-1)
    for name in _END_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    # Close all other descriptors, including the lock, which marks the step as running.
    low, high = sorted((reader, log.file))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))
    while block := os.read(reader, _BLOCK_BYTES):
        log.write(block)
    log.end()
    os._exit(0)


def _find_secrets() -> set[str]:
    """Return the secrets in the environment of the step."""
    return {
        value
        for name, value in os.environ.items()
        if name.startswith(_SECRET_PREFIX) or name == _TOKEN_VARIABLE
    }


def _create_masker(secrets: set[str]) -> SecretMasker | None:
    """Return what masks the log; the imports of it take longer than those of the wrapper."""
    return _import_redaction().SecretMasker(secrets) if secrets else None


def _mask_notebook(secrets: set[str]) -> None:
    """Mask the executed notebook, which another program has written."""
    notebook = os.environ.get(NOTEBOOK_VARIABLE, "")
    if not secrets or not notebook:
        return
    from pathlib import Path

    try:
        _import_redaction().redact_file(Path(notebook), sorted(secrets))
    except Exception as error:  # noqa: BLE001 - the exit code must be written; a supervisor masks it, too
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        os.write(2, f"{notebook}: {why}\n".encode(errors="replace"))


def _import_redaction() -> ModuleType:
    folder = f"{os.path.dirname(__file__)}/execution"  # noqa: PTH120
    if folder not in sys.path:
        sys.path.append(folder)
    return __import__("redaction")


def _reserve_files(prefix: str, received: list[int]) -> bool:
    """Write the .pid file and reserve room for the exit code; False if a signal came first."""
    while not received:
        try:
            _write_atomically(
                f"{prefix}.pid", f"{os.getpid()} {start_time(os.getpid())} {running_system()}"
            )
            with open(f"{prefix}.exit.draft", "w") as draft:  # noqa: PTH123
                draft.write(" " * _EXIT_CODE_BYTES)
            return True
        except OSError as error:
            if not _is_disk_full(error):
                os.write(2, f"{error.filename}: {error.strerror}\n".encode(errors="replace"))
                return True
            time.sleep(_RETRY_SECONDS)
    return False


def _write_exit_code(prefix: str, code: int, received: list[int]) -> None:
    """Write the exit code into the file reserved for it, and rename that."""
    draft = f"{prefix}.exit.draft"
    while True:
        try:
            number = os.open(draft, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.write(number, str(code).ljust(_EXIT_CODE_BYTES).encode())
            finally:
                os.close(number)
            os.replace(draft, f"{prefix}.exit")  # noqa: PTH105
            return
        except OSError as error:
            # Copy-on-write file systems may have no room despite the reservation.
            if received or not _is_disk_full(error):
                return  # the parent process gets the exit code, too
            time.sleep(_RETRY_SECONDS)


def _is_disk_full(error: OSError) -> bool:
    return error.errno in (28, 122)  # ENOSPC, EDQUOT; the errno module is not imported


def _write_atomically(path: str, text: str) -> None:
    """Write a file through a draft and a rename."""
    with open(f"{path}.draft", "w") as draft:  # noqa: PTH123
        draft.write(text)
    os.replace(f"{path}.draft", path)  # noqa: PTH105


if __name__ == "__main__":
    _code = run(sys.argv[1], sys.argv[2:])
    os._exit(_code if _code >= 0 else 128 - _code)
