"""Execute a notebook in a step, cell by cell: ``python notebook.py NOTEBOOK OUTPUT``.

It runs as a program of its own and imports nothing of hyperplane: that would be a tenth of the time
of a short notebook. What it needs to know stands in the environment, as
:mod:`hyperplane.jobs.environment` has put it there.
"""

from __future__ import annotations

import base64
import json
import keyword
import logging
import os
import sys
import zlib
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the modules beside this one are no modules of the notebook
    sys.path.pop(0)

PARAMETERS, PROGRESS = "HYPERPLANE_JOB_PARAMETERS", "HYPERPLANE_JOB_PROGRESS"
#: Set where nobody sees the output: then the log ends with it, in a line that begins so.
SEND, MARK = "HYPERPLANE_JOB_SEND_NOTEBOOK", "hyperplane-notebook:"
_LINE = 8192


def execute(notebook: Path, output: Path) -> None:
    """Execute a notebook, writing what is done of it after each cell.

    Parameters
    ----------
    notebook : Path
        The notebook; parameters of the job go after its cell tagged ``parameters``.
    output : Path
        Where the executed one is written; after a failure it shows the cell that failed.
    """
    try:
        import papermill
        from jupyter_client.manager import AsyncKernelManager
        from papermill.engines import NBClientEngine, papermill_engines
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
        async def _async_interrupt_kernel(self) -> None:
            """Nothing: at the end no cell runs, and the kernel would write an error of its own."""

    papermill_engines.register("hyperplane", Told)
    # A parameter that no cell declares is no news: every step of a job gets all of them.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    output.parent.mkdir(parents=True, exist_ok=True)
    parameters = json.loads(os.environ.get(PARAMETERS, "{}"))
    kernel, language = _kernel_of(notebook)
    if (
        language.lower() == "python"
    ):  # what is no name there would break the cell; the environment has it
        parameters = {name: parameters[name] for name in parameters if _is_variable(name)}
    papermill.execute_notebook(
        _plain(notebook),
        _plain(output),
        parameters=parameters,
        kernel_name=kernel,
        language=language,
        engine_name="hyperplane",
        progress_bar=False,
        stdout_file=sys.stdout,
        stderr_file=sys.stderr,
        cwd=str(Path.cwd()),
        kernel_manager_class=Calm,
        # Sockets that only this user can open, and no ports.
        config=Config({"KernelManager": {"transport": "ipc"}}),
    )


def _kernel_of(notebook: Path) -> tuple[str, str]:
    """The kernel and the language of a notebook; Python's where it says nothing."""
    metadata = json.loads(notebook.read_bytes()).get("metadata") or {}
    spec, info = metadata.get("kernelspec") or {}, metadata.get("language_info") or {}
    kernel = spec.get("name") or "python3"
    language = info.get("name") or spec.get("language")
    if not language:
        from jupyter_client.kernelspec import NoSuchKernel, get_kernel_spec

        try:
            language = get_kernel_spec(kernel).language
        except NoSuchKernel as error:
            sys.exit(f"{notebook.name}: {error}. jupyter kernelspec list shows those there are")
    return kernel, str(language)


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
