"""``python step_wrapper.py PREFIX PROGRAM ARGUMENT...``: run a step, record its exit code.

``PREFIX`` is the path of the attempt's files without their suffix. The wrapper imports as little as
possible, because it runs for every step. The program gets the environment, the arguments and the
signals unchanged. Its output goes through a pipe to the log, so that a full disk does not end the
program, and the size of the log can be limited.
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
else:
    from hyperplane.platforms.local.process_identity import running_system, start_time

#: Signals reset to their defaults for the program: Python, or the parent, may ignore them.
_DEFAULT_SIGNALS = ("SIGINT", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGHUP", "SIGTERM")
_END_SIGNALS = ("SIGINT", "SIGHUP", "SIGTERM")
#: Suffix of the file with the first lines of the log.
PREFACE_SUFFIX = ".preface"
#: Environment variable with the maximum size of a log in bytes.
LOG_LIMIT_VARIABLE = "HYPERPLANE_JOB_LOG_LIMIT"
#: Size of the exit code file in bytes, whatever the code; reserved before the program starts.
_EXIT_CODE_BYTES = 16
#: Suffix of the file with the memory and the CPU seconds of the program.
USAGE_SUFFIX = ".usage"
#: Seconds between two measurements of the program's memory.
_MEASURE_SECONDS = 1.0
#: The clock of the start times of processes, where the system has it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
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
    reader, writer = os.pipe()
    wakeup_reader, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    child = os.fork()
    if child == 0:
        _exec_program(argv, writer)
    os.close(writer)
    log = StepLog(f"{prefix}.log", _read_log_limit())
    log.write(_read_missing_preface(prefix))
    meter = UsageMeter(child)
    sources, code = [reader, wakeup_reader], None
    while code is None:
        seconds = _RETRY_SECONDS if log.has_pending else _MEASURE_SECONDS
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
    _write_exit_code(prefix, code, received)
    if stays_open:
        _fork_log_writer(reader, log)
    deadline = time.monotonic() + _FLUSH_SECONDS
    while log.has_pending and not received and time.monotonic() < deadline:
        time.sleep(_RETRY_SECONDS)
        log.write(b"")
    return code


class UsageMeter:
    """Memory and cores of a process with all that it has started, from the files of Linux.

    Elsewhere nothing is measured but what the system tells about processes that have ended.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._peak, self._cores = pid, 0, 0.0
        self._last = time.clock_gettime(_CLOCK)
        #: CPU seconds of each process, and of those that it has waited for, by its id and start.
        self._cpu: dict[tuple[int, float], tuple[float, float]] = {}
        #: CPU seconds of processes that have ended, which no other process has yet.
        self._missing = 0.0
        self._page, self._tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

    def measure_if_due(self) -> None:
        """Measure if a second has passed; it takes about 0.1 ms for each thread."""
        now = time.clock_gettime(_CLOCK)
        passed = now - self._last
        if passed < _MEASURE_SECONDS:
            return
        own, shared, cpu = 0, 0, {}
        pending, seen = [self._pid], set()
        while pending:
            pid = pending.pop()
            if pid in seen:
                continue
            seen.add(pid)
            try:
                sizes = _read(f"/proc/{pid}/statm").split()
                figures = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
                pages, common = int(sizes[1]), int(sizes[2])
                *times, started = (int(figures[at]) / self._tick for at in (11, 12, 13, 14, 19))
            except (OSError, ValueError, IndexError):  # it has ended, or there are no such files
                continue
            # What processes share, such as libraries, counts once.
            own += (pages - common) * self._page
            shared = max(shared, common * self._page)
            cpu[pid, started] = (sum(times[:2]), sum(times[2:]))
            pending += _list_children(pid)
        self._peak = max(self._peak, own + shared)
        self._cores = max(self._cores, self._sum_increases(cpu) / passed)
        self._last, self._cpu = now, cpu

    def _sum_increases(self, cpu: dict[tuple[int, float], tuple[float, float]]) -> float:
        """Return the CPU seconds that processes have used since the last measurement.

        The time of a process that has ended becomes part of that of its parent, perhaps only at the
        next measurement: what was counted before is subtracted from it. An older process that was
        not found the last time counts from now on: all its time would be that of one second.
        """
        used = ended = 0.0
        for process, (own, of_ended) in cpu.items():
            is_new = not self._cpu or process[1] >= self._last
            before = self._cpu.get(process, (0.0, 0.0) if is_new else (own, of_ended))
            used += own - before[0]
            ended += of_ended - before[1]
        gone = sum(sum(self._cpu[process]) for process in self._cpu.keys() - cpu.keys())
        missing = gone + self._missing - ended
        self._missing = min(gone, max(0.0, missing))
        return used + max(0.0, -missing)

    def write(self, path: str, largest: int, cpu: float) -> None:
        """Write peak, CPU seconds and cores; ``largest`` is the memory of one process."""
        try:
            with open(path, "w") as file:  # noqa: PTH123
                file.write(f"{max(self._peak, largest)} {cpu:.3f} {self._cores:.3f}")
        except OSError:  # a full disk: the attempt has no figures
            return


def _list_children(pid: int) -> list[int]:
    """Return the processes that the threads of a process have started."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            try:
                children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
            except OSError:  # this thread has ended
                continue
    except OSError:  # the process has ended
        pass
    return children


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


class StepLog:
    """The log on standard output: limited in size, and buffered while the disk is full.

    Of a longer log the beginning and the end are kept, at least about a quarter of the limit
    each. ``path`` is the log file; if standard output is another file, there is no limit.
    ``limit`` is in bytes, 0 for none.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._limit, self.file = limit, 2
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
        """Write a block; on a full disk, buffer its end for later."""
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
    os._exit(0)


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
