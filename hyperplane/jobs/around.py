"""``python around.py TRACES PROGRAM ARGUMENTS...``: runs a step and writes down how it ended.

It imports next to nothing, because every step pays for it, and changes nothing that the program
sees: its environment, its arguments and its signals are those that were given.
"""

from __future__ import annotations

import os
import signal
import sys

#: What Python ignores, or whoever started it; programs expect the usual.
_USUAL = ("SIGINT", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGHUP", "SIGTERM")
_POLITE = ("SIGINT", "SIGHUP", "SIGTERM")


def run(traces: str, argv: list[str]) -> int:
    """Run a program to its end; its exit code, negative for a signal."""
    _write(f"{traces}.pid", f"{os.getpid()} {started(os.getpid())} {running_system()}")
    for name in _POLITE:  # we are the last to end
        signal.signal(getattr(signal, name), lambda number, frame: None)
    child = os.fork()
    if child == 0:
        for name in _USUAL:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        try:
            os.execvp(argv[0], argv)  # noqa: S606 - no shell, and what the user asked for
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="replace"))
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _write(f"{traces}.exit", str(code))
    return code


def started(pid: int) -> str:
    """When a process started, in ticks of the system; empty where that is not told."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - pathlib takes longer than we do
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def running_system() -> str:
    """The boot and the namespace in which process numbers count; empty where that is not told.

    Two containers, and two machines with one home, have the same numbers for other processes.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:  # noqa: PTH123
            return f"{boot.read().strip()}-{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    """A file that is there with all of its text or not at all."""
    try:
        with open(f"{path}.draft", "w") as draft:  # noqa: PTH123
            draft.write(text)
        os.replace(f"{path}.draft", path)  # noqa: PTH105
    except OSError as error:  # a full disk: whoever waits for us has the exit code, too
        os.write(2, f"{path}: {error.strerror}\n".encode(errors="replace"))


if __name__ == "__main__":
    _code = run(sys.argv[1], sys.argv[2:])
    os._exit(_code if _code >= 0 else 128 - _code)
