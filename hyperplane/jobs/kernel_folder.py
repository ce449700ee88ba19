"""A private folder for the sockets of one kernel, and the process that removes it at the end.

It belongs to the program that executes a notebook, and imports nothing of hyperplane but one small
file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if __package__:
    from hyperplane.engines.running_system import started
else:  # beside the program
    from running_system import started  # type: ignore[import-not-found,no-redef]

#: How the folders of kernels' sockets begin, and the file in them that their process has locked.
_PREFIX, _LOCK = "hyperplane-kernel-", "lock"
#: Seconds that processes of a kernel have to end after SIGTERM.
_GRACE_SECONDS = 2.0


class KernelFolder:
    """A private folder with the sockets of one kernel.

    Parameters
    ----------
    folder : Path
        The folder.
    output : Path
        Where the executed notebook is written.
    cleaner : int
        The pipe to the process that removes the folder.
    """

    def __init__(self, folder: Path, output: Path, cleaner: int) -> None:
        self._folder, self._output, self._cleaner = folder, output, cleaner
        self._draft = _draft_path(output, folder)

    def settings(self) -> dict[str, str]:
        """Traits of a kernel manager: sockets that only this user can open, and no ports.

        Without ``ip`` the sockets would be ``kernel-ipc-N`` in the working folder, where kernels
        that start together take each other's.
        """
        connection = str(self._folder / "connection.json")
        return {"transport": "ipc", "ip": str(self._folder / "k"), "connection_file": connection}

    def note_kernel(self, pid: int | None) -> None:
        """Have the processes of a kernel ended with this one: they are a session of their own."""
        if pid is not None:
            os.write(self._cleaner, f"{pid} {started(pid)}\n".encode())

    def write_output(self, text: str) -> None:
        """Write the executed notebook, all of it or nothing: another run may write it now."""
        try:
            self._draft.write_text(text, encoding="utf-8")
            with contextlib.suppress(OSError):
                self._draft.chmod(stat.S_IMODE(self._output.stat().st_mode))
            self._draft.replace(self._output)
        except PermissionError:  # the file may be ours in a folder that is not
            try:
                self._output.write_text(text, encoding="utf-8")
            except PermissionError as error:
                raise PermissionError(
                    f"the executed notebook {self._output} cannot be written: {error.strerror}. "
                    "Set notebook_output_path to a file that you may write"
                ) from error


@contextlib.contextmanager
def open_kernel_folder(output: Path) -> Iterator[KernelFolder]:
    """A folder for the sockets of a kernel, removed when this process ends, however it ends."""
    folder, lock = create_folder()
    reader, writer = os.pipe()
    cleaner = os.fork()
    if cleaner == 0:
        os.close(writer)
        _clean_up_after_parent(reader, folder, _draft_path(output, folder))
    os.close(reader)
    try:
        yield KernelFolder(folder, output, writer)
    finally:
        os.close(writer)
        os.waitpid(cleaner, 0)
        os.close(lock)


def _draft_path(output: Path, folder: Path) -> Path:
    return output.with_name(f".{output.name[:200]}.{folder.name.removeprefix(_PREFIX)}")


def _clean_up_after_parent(reader: int, folder: Path, draft: Path) -> None:
    """In a forked process: wait for the end of its parent, then remove what that leaves.

    A process that is killed cleans up nothing, nor does one around it in the same process group.
    """
    try:
        os.setsid()  # a signal to the group of the step does not reach it
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # a reader of the log waits until its last writer ends
            os.dup2(null, number)
        os.closerange(3, reader)
        os.closerange(reader + 1, 256)
        with open(reader) as lines:  # its end is that of the parent
            kernels = [line.split(" ") for line in lines.read().splitlines()]
        for pid, began in kernels:
            _end_group(int(pid), began)
        draft.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _end_group(pid: int, began: str) -> None:
    """End the process group of a kernel: politely, and after a while surely."""
    # A process of that number which began at another time belongs to another program.
    if started(pid) not in ("", began):
        return
    deadline = time.monotonic() + _GRACE_SECONDS
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(0.05)
            os.killpg(pid, 0)
        os.killpg(pid, signal.SIGKILL)


def create_folder() -> tuple[Path, int]:
    """A new folder that only this user can open, and its locked file."""
    wrong: list[str] = []
    usual = ("/tmp", "/var/tmp")  # noqa: S108 - the folder made there is closed to other users
    there = [tempfile.gettempdir(), *usual, os.environ.get("XDG_RUNTIME_DIR"), "~"]
    for parent in dict.fromkeys(Path(one).expanduser() for one in there if one):
        try:
            _remove_abandoned(parent)
            mode = parent.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise PermissionError("others can rename what is in it")
            return _create_in(parent)
        except OSError as error:
            wrong.append(f"{parent}: {error.strerror or error}")
    sys.exit(
        f"no folder for the sockets of the kernel ({'; '.join(wrong)}). "
        "Set TMPDIR to a folder on a local disk, with a path of at most 70 bytes"
    )


def _create_in(parent: Path) -> tuple[Path, int]:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    lock = -1
    try:
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, b"%d" % os.getpid())  # a full disk takes no connection file either
        # Not every file system has sockets, and a socket's path may be short only.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(folder / "socket"))
        (folder / "socket").unlink()
    except OSError:
        if lock >= 0:
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, lock


def _remove_abandoned(parent: Path) -> None:
    """Remove folders whose process was killed together with the one that cleans up after it."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.getuid() or not folder.is_dir():
                continue
            if time.time() - folder.lstat().st_mtime < 60:  # its owner may not have locked it yet
                continue
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
