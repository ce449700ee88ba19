"""``python measured_program.py PROGRAM ARGUMENT...``: run the program of a step in a container.

It passes signals on to the program, which may rely on that: as the first process of a container it
is the only one that gets them. It ends as the program has ended, and measures what that took. If
the runner of the step reads its log, the last line of the log has the figures.

``task_program.py`` has the text of this file, which replaces it: a process without the packages
that have fetched the files, such as boto3, takes 10 MB of the memory of the container, not 60 MB.
The Python of an image may be 3.7.
"""

from __future__ import annotations

import os
import signal
import sys

if __package__:
    from hyperplane.platforms.local.process_meter import MEASURE_SECONDS, UsageMeter
else:  # in a container, where both files are in one folder
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    from process_meter import MEASURE_SECONDS, UsageMeter  # type: ignore[import-not-found, no-redef]

TYPE_CHECKING = False  # without typing, which would take most of the time of the imports
if TYPE_CHECKING:
    from resource import struct_rusage

#: Beginning of the line with the figures: peak, CPU seconds, cores, bytes read and written.
USAGE_MARKER = "hyperplane-usage:"
#: Variable of a step whose runner removes that line from its copy of the log; the same as
#: ``SEND_VARIABLE`` of ``hyperplane.core.artifact_reports``.
SEND_VARIABLE = "HYPERPLANE_JOB_SEND_ARTIFACTS"
#: Variable of a container whose other processes get the signals of the first one, too.
GROUP_SIGNALS = "HYPERPLANE_JOB_GROUP_SIGNALS"
#: Variable of a rehearsal: the program is killed with this process, as in a container.
END_WITH_PARENT = "HYPERPLANE_JOB_END_WITH_PARENT"
#: Variable with LC_CTYPE of the step, which a start of Python replaces in the locale C.
LOCALE = "HYPERPLANE_JOB_LC_CTYPE"
#: Request of prctl for the signal after the end of the parent.
_PARENT_DEATH_SIGNAL = 1
_FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")


def run(argv: list[str]) -> int:
    """Run a program to its end and return its exit code, negative for a signal."""
    forwarded = {getattr(signal, name) for name in _FORWARDED}
    forwards = not os.environ.pop(GROUP_SIGNALS, "")
    ends_with_parent = bool(os.environ.pop(END_WITH_PARENT, ""))
    if LOCALE in os.environ:
        os.environ["LC_CTYPE"] = os.environ.pop(LOCALE)
        if not os.environ["LC_CTYPE"]:
            del os.environ["LC_CTYPE"]
    # The kernel drops signals for the first process of a container, unless they are blocked.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*forwarded, signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, ended processes would have no figures
    parent, child = os.getpid(), os.fork()
    if child == 0:
        if ends_with_parent:
            _end_with(parent)
        _exec_program(argv, mask)
    meter, code, largest, cpu = UsageMeter(child), None, 0, 0.0
    while code is None:
        received = signal.sigtimedwait({*forwarded, signal.SIGCHLD}, MEASURE_SECONDS)
        if received is not None and received.si_signo in forwarded and forwards:
            _send(child, received.si_signo)
        meter.measure_if_due()
        # The first process of a container inherits those whose parents have ended.
        for pid, status, spent in _reap_ended():
            largest = max(largest, spent.ru_maxrss * 1024)
            cpu += spent.ru_utime + spent.ru_stime
            if pid == child:
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    if os.environ.get(SEND_VARIABLE):
        _write(1, f"\n{USAGE_MARKER}{meter.describe(largest, cpu)}\n")
    return code


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    import ctypes

    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _send(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except PermissionError:  # the program has become that of another user, such as with sudo
        return


def _exec_program(argv: list[str], mask: set[int]) -> None:
    """Replace the new process with the program."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - a list of arguments, and no shell
    except OSError as error:
        _write(2, f"{argv[0]}: {error.strerror}\n")
        # The exit codes of a shell.
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _reap_ended() -> list[tuple[int, int, struct_rusage]]:
    """Return the id, status and usage of each child that has ended."""
    ended = []
    try:
        found = os.wait4(-1, os.WNOHANG)
        while found[0]:
            ended.append(found)
            found = os.wait4(-1, os.WNOHANG)
    except ChildProcessError:  # there are no others
        pass
    return ended


def _write(descriptor: int, text: str) -> None:
    try:
        os.write(descriptor, text.encode(errors="replace"))
    except OSError:  # the log is closed
        return


def _reset_handler(number: int) -> None:
    try:
        signal.signal(number, signal.SIG_DFL)
    except OSError:  # SIGKILL has none, and those of signals of the C library cannot be set
        return


def end_as(code: int) -> None:
    """End this process with an exit code or by a signal, as another process has ended."""
    if code < 0:
        import resource

        # The core of the program, if it has left one, would be replaced.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        _reset_handler(-code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    # The first process of a container cannot be killed by itself; 128 + n is the code of a shell.
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    end_as(run(sys.argv[1:]))
