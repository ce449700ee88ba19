"""Execute a notebook in a step, cell by cell: ``python notebook.py NOTEBOOK OUTPUT``.

Runs as a separate program and does not import the package ``hyperplane``, which would take a tenth
of the time of a short notebook. Its options are environment variables, set by
:mod:`hyperplane.jobs.execution.step_environment`.
"""

from __future__ import annotations

import base64
import json
import keyword
import logging
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Modules in this folder must not be importable from the notebook.
    _path = sys.path[:] if sys.flags.safe_path else sys.path[1:]
    # In a pod all files are in this folder; in the package they are in three folders.
    _folder = Path(__file__).parent
    _local = _folder.parent / "platforms" / "local"
    sys.path += [str(_folder), str(_folder / "notebook_steps"), str(_local)]
    from cell_errors import describe_error, name_cell  # type: ignore[import-not-found]
    from kernel_folder import KernelFolder, open_kernel_folder  # type: ignore[import-not-found]

    sys.path[:] = _path
else:
    from hyperplane.jobs.notebook_steps.cell_errors import describe_error, name_cell
    from hyperplane.jobs.notebook_steps.kernel_folder import KernelFolder, open_kernel_folder

PARAMETERS, PROGRESS = "HYPERPLANE_JOB_PARAMETERS", "HYPERPLANE_JOB_PROGRESS"
#: Kernel that the step selects; by default the one that the notebook names.
KERNEL = "HYPERPLANE_JOB_KERNEL"
#: Kernel of a notebook that names none.
DEFAULT_KERNEL = "python3"
#: Variable of a step whose output file cannot be read, as in a pod: the step then prints the
#: executed notebook at the end of its log. The second constant is the prefix of these lines.
SEND_VARIABLE, LINE_MARKER = "HYPERPLANE_JOB_SEND_NOTEBOOK", "hyperplane-notebook:"
_LINE_LENGTH = 8192
#: Optional imports of papermill and jsonschema (cloud clients, a URI grammar), hidden from them:
#: their import takes two seconds, and notebooks here are local files.
_UNUSED = ("boto3", "gcsfs", "pyarrow", "rfc3987_syntax")
#: Seconds that a kernel may take to start: many starting at once share few cores.
_START_SECONDS = 600


def execute(notebook: Path, output: Path) -> None:
    """Execute a notebook, writing the result after each cell.

    Parameters
    ----------
    notebook : Path
        The notebook; parameters of the job follow its cell tagged ``parameters``.
    output : Path
        Path of the executed notebook; after a failure it shows the cell that failed.
    """
    output = output.resolve()
    # Opened first: it forks this process, which now has one thread and few open files.
    with open_kernel_folder(output) as folder:
        _execute(notebook, output, folder)


def _execute(notebook: Path, output: Path, folder: KernelFolder) -> None:
    try:
        with _hide_modules(_UNUSED):
            import papermill
        from jupyter_client.manager import AsyncKernelManager
        from nbclient.exceptions import DeadKernelError
        from papermill.engines import NBClientEngine, papermill_engines
        from papermill.exceptions import PapermillExecutionError
        from papermill.iorw import LocalHandler, papermill_io
        from traitlets.config import Config
    except ImportError as error:
        sys.exit(f"{error}. Notebooks need additional packages: pip install 'hyperplane[jobs]'")

    current_cell = 0

    class ProgressEngine(NBClientEngine):  # type: ignore[misc]
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> Any:
            start_cell, count = nb_man.cell_start, len(nb_man.nb.cells)

            def cell_start(cell: Any, cell_index: int | None = None, **more: Any) -> None:
                nonlocal current_cell
                current_cell = cell_index or 0
                _write_progress(current_cell + 1, count)
                start_cell(cell, cell_index, **more)

            nb_man.cell_start = cell_start
            return super().execute_managed_notebook(nb_man, kernel_name, **options)

    class UninterruptedKernelManager(AsyncKernelManager):
        @property
        def kernel_spec(self) -> Any:
            return own_spec or super().kernel_spec

        async def _async_post_start_kernel(self, **options: Any) -> None:
            folder.register_kernel(getattr(self.provisioner, "pid", None))
            await super()._async_post_start_kernel(**options)

        async def _async_interrupt_kernel(self) -> None:
            """Do nothing: at the end no cell runs, and the kernel would log an error."""

    class NotebookWriter(LocalHandler):  # type: ignore[misc]
        def write(self, text: str, path: str) -> None:
            folder.write_output(text)

    papermill_engines.register("hyperplane", ProgressEngine)
    papermill_io.register(str(output), NotebookWriter())
    # Undeclared parameters are expected: every step of a job gets all of them.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(
            f"cannot write the executed notebook {output}: {error.filename} is no folder. "
            "Set notebook_output_path to a file in a folder"
        ) from None
    parameters = json.loads(os.environ.get(PARAMETERS, "{}"))
    metadata = json.loads(notebook.read_bytes()).get("metadata") or {}
    kernel, language, own_spec = _select_kernel(notebook.name, metadata)
    if language == "python":  # other names would break the cell; they are in the environment
        parameters = {name: parameters[name] for name in parameters if is_variable(name)}
    try:
        papermill.execute_notebook(
            _escape_braces(notebook),
            _escape_braces(output),
            parameters=parameters,
            kernel_name=kernel,
            language=language,
            engine_name="hyperplane",
            start_timeout=_START_SECONDS,
            progress_bar=False,
            stdout_file=sys.stdout,
            stderr_file=sys.stderr,
            cwd=str(Path.cwd()),
            kernel_manager_class=UninterruptedKernelManager,
            config=Config({"KernelManager": folder.settings()}),
        )
    # Without the tracebacks of papermill; that of the cell is in the message.
    except PapermillExecutionError as error:
        cell = name_cell(output, error.cell_index, error.exec_count)
        message = describe_error(
            notebook.name, cell, error.ename, str(error.evalue), list(error.traceback)
        )
        sys.exit(message)
    except DeadKernelError as error:
        cell = name_cell(output, current_cell, None)
        sys.exit(
            f"{notebook.name}: {cell} ended its kernel\n"
            f"{type(error).__module__}.{type(error).__name__}: {error}"
        )


@contextmanager
def _hide_modules(names: Iterable[str]) -> Iterator[None]:
    """Within a block, make imports of these modules fail as if they were not installed."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _select_kernel(name: str, metadata: Mapping[str, Any]) -> tuple[str, str, Any]:
    """Return kernel, language, and the specification that replaces a missing kernel, or None."""
    from jupyter_client.kernelspec import NoSuchKernel, get_kernel_spec

    selected = os.environ.get(KERNEL)
    language = "" if selected else notebook_language(metadata)
    kernel = selected or (metadata.get("kernelspec") or {}).get("name") or DEFAULT_KERNEL
    try:
        language = language or get_kernel_spec(kernel).language
        get_kernel_spec(kernel)
        spec = None
    except NoSuchKernel as error:
        spec = None if language.lower() != "python" else _own_kernel_spec()
        if spec is None:
            sys.exit(f"{name}: {error}. 'jupyter kernelspec list' shows the installed kernels")
        version = ".".join(map(str, sys.version_info[:3]))
        sys.stderr.write(
            f"{name} names the kernel {kernel!r}, which is not installed; it runs with the "
            f"kernel of {sys.executable} (Python {version})\n"
        )
        kernel = DEFAULT_KERNEL
    # Papermill writes the parameters in this language, and knows Python only in lower case.
    return kernel, "python" if language.lower() == "python" else language, spec


def _own_kernel_spec() -> Any:
    """Return the kernel specification of this interpreter, or None."""
    from jupyter_client.kernelspec import KernelSpec

    try:
        from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    except ImportError:
        return None
    return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


def notebook_language(metadata: Mapping[str, Any]) -> str:
    """Return the language that a notebook's metadata states; empty if it states none.

    If it states two, one of them Python, return the other one: Sage also states Python.

    Examples
    --------
    >>> notebook_language({"kernelspec": {"name": "conda-root-py", "language": "python"}})
    'python'
    >>> r_kernel = {"name": "ir", "language": "R"}
    >>> notebook_language({"kernelspec": r_kernel, "language_info": {"name": "R"}})
    'R'
    >>> notebook_language({"kernelspec": {"name": "root-py", "display_name": "Python [root]"}})
    'python'
    """
    spec, info = metadata.get("kernelspec") or {}, metadata.get("language_info") or {}
    languages = [str(name) for name in (info.get("name"), spec.get("language")) if name]
    if languages:
        return next((name for name in languages if name.lower() != "python"), "python")
    hints = (str(info.get("file_extension")), str(spec.get("display_name")).lower())
    return "python" if hints[0] == ".py" or hints[1].startswith("python") else ""


def is_variable(name: str) -> bool:
    """Whether a parameter can be a variable of a Python notebook."""
    return name.isidentifier() and not keyword.iskeyword(name)


def _write_progress(cell: int, cells: int) -> None:
    file = os.environ.get(PROGRESS)
    if file:
        draft = Path(f"{file}.draft")
        draft.write_text(f"{cell}/{cells}")
        draft.replace(file)


def _escape_braces(path: Path) -> str:
    """Return a path in which papermill finds no placeholder."""
    return str(path.resolve()).replace("{", "{{").replace("}", "}}")


def _print_notebook(output: Path) -> None:
    """Print the executed notebook to the log if the file cannot be read otherwise."""
    if os.environ.get(SEND_VARIABLE) and output.exists():
        packed = base64.b64encode(zlib.compress(output.read_bytes())).decode()
        # In lines that container runtimes do not split.
        lines = [packed[at : at + _LINE_LENGTH] for at in range(0, len(packed), _LINE_LENGTH)]
        sys.stdout.write("".join(f"\n{LINE_MARKER}{line}" for line in lines) + "\n")
        sys.stdout.flush()


def extract_notebook(log: bytes) -> tuple[bytes, bytes | None]:
    r"""Split a log into its text and the notebook at its end, None if there is none.

    Examples
    --------
    >>> packed = base64.b64encode(zlib.compress(b"{}"))
    >>> extract_notebook(b"1\n\n" + LINE_MARKER.encode() + packed + b"\nValueError: x\n")
    (b'1\nValueError: x\n', b'{}')
    """
    mark = LINE_MARKER.encode()
    if mark not in log:
        return log, None
    lines = log.split(b"\n")
    packed = b"".join(line.removeprefix(mark) for line in lines if line.startswith(mark))
    first = next(at for at, line in enumerate(lines) if line.startswith(mark))
    # The empty line before the first one belongs to the notebook.
    text = lines[: first - 1 if first and not lines[first - 1] else first]
    rest = b"\n".join([*text, *(line for line in lines[first:] if not line.startswith(mark))])
    try:
        return rest, zlib.decompress(base64.b64decode(packed))
    except (ValueError, zlib.error):  # truncated
        return rest, None


if __name__ == "__main__":
    _notebook, _output = map(Path, sys.argv[1:])
    try:
        execute(_notebook, _output)
    finally:
        _print_notebook(_output)
