"""Private folder for the sockets of one kernel, and a process that removes it at the end.

Part of the program that executes notebooks; it imports only one other small file of hyperplane.
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
    from hyperplane.platforms.local.process_identity import is_id_reused, start_time
else:  # a file in the folder of the program
    from process_identity import (  # type: ignore[import-not-found,no-redef]
        is_id_reused,
        start_time,
    )

#: Prefix of the names of kernel folders, and name of the file that the owner locks.
_PREFIX, _LOCK = "hyperplane-kernel-", "lock"
#: Seconds that kernel processes have to end after SIGTERM.
_GRACE_SECONDS = 2.0


class KernelFolder:
    """A private folder with the sockets of one kernel.

    Parameters
    ----------
    folder : Path
        The folder.
    output : Path
        Path of the executed notebook.
    cleaner : int
        Pipe to the process that removes the folder.
    """

    def __init__(self, folder: Path, output: Path, cleaner: int) -> None:
        self._folder, self._output, self._cleaner = folder, output, cleaner
        self._draft = _draft_path(output, folder)

    def settings(self) -> dict[str, str]:
        """Return kernel manager traits: sockets that only this user can open, and no ports.

        Without ``ip`` the sockets would be ``kernel-ipc-N`` in the working folder, where kernels
        that start at the same time use each other's.
        """
        connection = str(self._folder / "connection.json")
        return {"transport": "ipc", "ip": str(self._folder / "k"), "connection_file": connection}

    def register_kernel(self, pid: int | None) -> None:
        """Register a kernel: its processes are ended when this process ends."""
        if pid is not None:
            os.write(self._cleaner, f"{pid} {start_time(pid)}\n".encode())

    def write_output(self, text: str) -> None:
        """Write the executed notebook atomically: another run may be writing it."""
        try:
            self._draft.write_text(text, encoding="utf-8")
            with contextlib.suppress(OSError):
                self._draft.chmod(stat.S_IMODE(self._output.stat().st_mode))
            self._draft.replace(self._output)
        except PermissionError:  # the file may be writable in a folder that is not
            try:
                self._output.write_text(text, encoding="utf-8")
            except PermissionError as error:
                raise PermissionError(
                    f"cannot write the executed notebook {self._output}: {error.strerror}. "
                    "Set notebook_output_path to a writable file"
                ) from error


@contextlib.contextmanager
def open_kernel_folder(output: Path) -> Iterator[KernelFolder]:
    """Create a folder for a kernel's sockets; remove it when the block or this process ends."""
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
    """In a forked process, wait for the end of the parent and remove what it leaves.

    The parent may be killed together with its process group, which this process leaves.
    """
    try:
        os.setsid()  # not reached by signals to the step's process group
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # readers of the log wait until its last writer ends
            os.dup2(null, number)
        os.closerange(3, reader)
        os.closerange(reader + 1, 256)
        with open(reader) as lines:  # ends when the parent does
            kernels = [line.split(" ") for line in lines.read().splitlines()]
        for pid, began in kernels:
            _end_group(int(pid), began)
        with contextlib.suppress(OSError):  # its folder is none, or not writable any more
            draft.unlink()
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _end_group(pid: int, began: str) -> None:
    """End the process group of a kernel with SIGTERM, and with SIGKILL after a grace period."""
    if is_id_reused(pid, began):
        return
    deadline = time.monotonic() + _GRACE_SECONDS
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(0.05)
            os.killpg(pid, 0)
        os.killpg(pid, signal.SIGKILL)


def create_folder() -> tuple[Path, int]:
    """Create a folder that only this user can open; return it and its lock file."""
    errors: list[str] = []
    standard_folders = ("/tmp", "/var/tmp")  # noqa: S108 - the folder made there is closed to other users
    candidates = [tempfile.gettempdir(), *standard_folders, os.environ.get("XDG_RUNTIME_DIR"), "~"]
    for parent in dict.fromkeys(Path(path).expanduser() for path in candidates if path):
        try:
            _remove_abandoned(parent)
            mode = parent.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise PermissionError("other users can rename files in it")
            return _create_in(parent)
        except OSError as error:
            errors.append(f"{parent}: {error.strerror or error}")
    sys.exit(
        f"no usable folder for the sockets of the kernel ({'; '.join(errors)}). "
        "Set TMPDIR to a folder on a local disk with a path of at most 70 bytes"
    )


def _create_in(parent: Path) -> tuple[Path, int]:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    lock = -1
    try:
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, b"%d" % os.getpid())  # fails on a full disk, as the connection file would
        # Some file systems have no sockets, and the path of a socket is limited.
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
    """Remove folders whose owner and cleanup process were both killed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.getuid() or not folder.is_dir():
                continue
            if time.time() - folder.lstat().st_mtime < 60:  # may not be locked yet
                continue
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
