"""Execute a notebook in a step, cell by cell: ``python notebook.py NOTEBOOK OUTPUT``.

It runs as a program of its own and imports nothing of hyperplane: that would be a tenth of the time
of a short notebook. What it needs to know stands in the environment, as
:mod:`hyperplane.jobs.environment` has put it there.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import keyword
import logging
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the modules beside this one are no modules of the notebook
    sys.path.pop(0)

PARAMETERS, PROGRESS = "HYPERPLANE_JOB_PARAMETERS", "HYPERPLANE_JOB_PROGRESS"
#: The kernel that the step chooses; else the notebook names it.
KERNEL = "HYPERPLANE_JOB_KERNEL"
#: The kernel of a notebook that names none.
DEFAULT_KERNEL = "python3"
#: Set where nobody sees the output: then the log ends with it, in a line that begins so.
SEND, MARK = "HYPERPLANE_JOB_SEND_NOTEBOOK", "hyperplane-notebook:"
_LINE = 8192
#: How the folders of kernels' sockets begin, and the file in them that their process has locked.
_FOLDERS, _LOCK = "hyperplane-kernel-", "lock"
#: Seconds that a kernel may take to answer: many that start together take turns on few cores.
_START = 600
#: Seconds that processes of a kernel have to end after SIGTERM.
_GRACE = 2.0


def execute(notebook: Path, output: Path) -> None:
    """Execute a notebook, writing what is done of it after each cell.

    Parameters
    ----------
    notebook : Path
        The notebook; parameters of the job go after its cell tagged ``parameters``.
    output : Path
        Where the executed one is written; after a failure it shows the cell that failed.
    """
    output = output.resolve()
    # First of all, while this process has one thread and few files: it forks.
    with _kernel_folder(output) as place:
        _execute(notebook, output, place)


def _execute(notebook: Path, output: Path, place: _KernelFolder) -> None:
    try:
        import papermill
        from jupyter_client.manager import AsyncKernelManager
        from papermill.engines import NBClientEngine, papermill_engines
        from papermill.iorw import LocalHandler, papermill_io
        from traitlets.config import Config
    except ImportError as error:
        sys.exit(f"{error}. Notebooks need more packages: pip install 'hyperplane[jobs]'")

    class Told(NBClientEngine):  # type: ignore[misc]
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> Any:
            begin, count = nb_man.cell_start, len(nb_man.nb.cells)

            def cell_start(cell: Any, cell_index: int | None = None, **more: Any) -> None:
                _note((cell_index or 0) + 1, count)
                begin(cell, cell_index, **more)

            nb_man.cell_start = cell_start
            return super().execute_managed_notebook(nb_man, kernel_name, **options)

    class Calm(AsyncKernelManager):
        @property
        def kernel_spec(self) -> Any:
            return native or super().kernel_spec

        async def _async_post_start_kernel(self, **options: Any) -> None:
            place.note_kernel(getattr(self.provisioner, "pid", None))
            await super()._async_post_start_kernel(**options)

        async def _async_interrupt_kernel(self) -> None:
            """Nothing: at the end no cell runs, and the kernel would write an error of its own."""

    class Output(LocalHandler):  # type: ignore[misc]
        def write(self, text: str, path: str) -> None:
            place.write_output(text)

    papermill_engines.register("hyperplane", Told)
    papermill_io.register(str(output), Output())
    # A parameter that no cell declares is no news: every step of a job gets all of them.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    output.parent.mkdir(parents=True, exist_ok=True)
    parameters = json.loads(os.environ.get(PARAMETERS, "{}"))
    metadata = json.loads(notebook.read_bytes()).get("metadata") or {}
    kernel, language, native = _choose_kernel(notebook.name, metadata)
    if language == "python":  # what is no name there would break the cell; the environment has it
        parameters = {name: parameters[name] for name in parameters if _is_variable(name)}
    papermill.execute_notebook(
        _plain(notebook),
        _plain(output),
        parameters=parameters,
        kernel_name=kernel,
        language=language,
        engine_name="hyperplane",
        start_timeout=_START,
        progress_bar=False,
        stdout_file=sys.stdout,
        stderr_file=sys.stderr,
        cwd=str(Path.cwd()),
        kernel_manager_class=Calm,
        config=Config({"KernelManager": place.settings()}),
    )


class _KernelFolder:
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
        self._draft = _draft_of(output, folder)

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
            os.write(self._cleaner, f"{pid} {_started(pid)}\n".encode())

    def write_output(self, text: str) -> None:
        """Write the executed notebook, all of it or nothing: another run may write it now."""
        try:
            self._draft.write_text(text, encoding="utf-8")
            with contextlib.suppress(OSError):
                self._draft.chmod(stat.S_IMODE(self._output.stat().st_mode))
            self._draft.replace(self._output)
        except PermissionError:  # the file may be ours in a folder that is not
            self._output.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _kernel_folder(output: Path) -> Iterator[_KernelFolder]:
    """A folder for the sockets of a kernel, removed when this process ends, however it ends."""
    folder, lock = _make_folder()
    reader, writer = os.pipe()
    cleaner = os.fork()
    if cleaner == 0:
        os.close(writer)
        _clean_up(reader, folder, _draft_of(output, folder))
    os.close(reader)
    try:
        yield _KernelFolder(folder, output, writer)
    finally:
        os.close(writer)
        os.waitpid(cleaner, 0)
        os.close(lock)


def _draft_of(output: Path, folder: Path) -> Path:
    return output.with_name(f".{output.name[:200]}.{folder.name.removeprefix(_FOLDERS)}")


def _clean_up(reader: int, folder: Path, draft: Path) -> None:
    """In a forked process: wait for the end of its parent, then remove what that leaves.

    A process that is killed cleans up nothing, nor does one around it in the same process group.
    """
    try:
        os.setsid()  # a signal to the group of the step does not reach it
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # whoever reads the log waits for its last writer
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
    if _started(pid) not in ("", began):
        return
    deadline = time.monotonic() + _GRACE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(0.05)
            os.killpg(pid, 0)
        os.killpg(pid, signal.SIGKILL)


def _started(pid: int) -> str:
    """When a process started, in ticks of the system; empty where that is not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _make_folder() -> tuple[Path, int]:
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
            return _made_in(parent)
        except OSError as error:
            wrong.append(f"{parent}: {error.strerror or error}")
    sys.exit(
        f"no folder for the sockets of the kernel ({'; '.join(wrong)}). "
        "Set TMPDIR to a folder on a local disk, with a path of at most 70 bytes"
    )


def _made_in(parent: Path) -> tuple[Path, int]:
    folder = Path(tempfile.mkdtemp(prefix=_FOLDERS, dir=parent))
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
    for folder in parent.glob(f"{_FOLDERS}*"):
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


def _choose_kernel(name: str, metadata: Mapping[str, Any]) -> tuple[str, str, Any]:
    """The kernel for a notebook, its language, and its specification if none is installed."""
    from jupyter_client.kernelspec import NoSuchKernel, get_kernel_spec

    chosen = os.environ.get(KERNEL)
    language = "" if chosen else language_of(metadata)
    kernel = chosen or (metadata.get("kernelspec") or {}).get("name") or DEFAULT_KERNEL
    try:
        language = language or get_kernel_spec(kernel).language
        get_kernel_spec(kernel)
        native = None
    except NoSuchKernel as error:
        native = None if language.lower() != "python" else _native_kernel()
        if native is None:
            sys.exit(f"{name}: {error}. jupyter kernelspec list shows those there are")
        version = ".".join(map(str, sys.version_info[:3]))
        sys.stderr.write(
            f"{name} names the kernel {kernel!r}, which is not installed here: it runs with the "
            f"kernel of {sys.executable} (Python {version})\n"
        )
        kernel = DEFAULT_KERNEL
    # Papermill writes parameters in the language, whose name it knows in lower case.
    return kernel, "python" if language.lower() == "python" else language, native


def _native_kernel() -> Any:
    """The kernel of this interpreter; None where it has none."""
    from jupyter_client.kernelspec import KernelSpec

    try:
        from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    except ImportError:
        return None
    return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


def language_of(metadata: Mapping[str, Any]) -> str:
    """The language that a notebook's metadata states; empty where it states none.

    Parameters
    ----------
    metadata : mapping
        That of the notebook.

    Returns
    -------
    str
        Where two names are given, such as of Sage, which calls itself Python, too, the other one.

    Examples
    --------
    >>> language_of({"kernelspec": {"name": "conda-root-py", "language": "python"}})
    'python'
    >>> language_of({"kernelspec": {"name": "ir", "language": "R"}, "language_info": {"name": "R"}})
    'R'
    >>> language_of({"kernelspec": {"name": "conda-root-py", "display_name": "Python [root]"}})
    'python'
    """
    spec, info = metadata.get("kernelspec") or {}, metadata.get("language_info") or {}
    stated = [str(one) for one in (info.get("name"), spec.get("language")) if one]
    if stated:
        return next((one for one in stated if one.lower() != "python"), "python")
    hints = (str(info.get("file_extension")), str(spec.get("display_name")).lower())
    return "python" if hints[0] == ".py" or hints[1].startswith("python") else ""


def _is_variable(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _note(cell: int, cells: int) -> None:
    file = os.environ.get(PROGRESS)
    if file:
        draft = Path(f"{file}.draft")
        draft.write_text(f"{cell}/{cells}")
        draft.replace(file)


def _plain(path: Path) -> str:
    """A path in which papermill finds no place for a parameter."""
    return str(path.resolve()).replace("{", "{{").replace("}", "}}")


def _send(output: Path) -> None:
    """Write the executed notebook to the log, if nobody sees it otherwise."""
    if os.environ.get(SEND) and output.exists():
        packed = base64.b64encode(zlib.compress(output.read_bytes())).decode()
        # In lines that no runtime of containers cuts into pieces.
        lines = [packed[at : at + _LINE] for at in range(0, len(packed), _LINE)]
        sys.stdout.write("".join(f"\n{MARK}{line}" for line in lines) + "\n")
        sys.stdout.flush()


def sent_in(log: bytes) -> tuple[bytes, bytes | None]:
    r"""A log without the notebook at its end, and the notebook; None when there is none.

    Examples
    --------
    >>> packed = base64.b64encode(zlib.compress(b"{}"))
    >>> sent_in(b"1\n\n" + MARK.encode() + packed + b"\nValueError: x\n")
    (b'1\nValueError: x\n', b'{}')
    """
    mark = MARK.encode()
    if mark not in log:
        return log, None
    lines = log.split(b"\n")
    packed = b"".join(line.removeprefix(mark) for line in lines if line.startswith(mark))
    first = next(at for at, line in enumerate(lines) if line.startswith(mark))
    # The line before the first one is there to begin it.
    text = lines[: first - 1 if first and not lines[first - 1] else first]
    rest = b"\n".join([*text, *(line for line in lines[first:] if not line.startswith(mark))])
    try:
        return rest, zlib.decompress(base64.b64decode(packed))
    except (ValueError, zlib.error):  # cut off on its way
        return rest, None


if __name__ == "__main__":
    _notebook, _output = map(Path, sys.argv[1:])
    try:
        execute(_notebook, _output)
    finally:
        _send(_output)
