"""Run a sample in a separate process."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import cloudpickle
import psutil

from hyperplane.clusters.dask.local.main_module import spawn_preparation
from hyperplane.clusters.dask.worker_memory import ARROW_POOL
from hyperplane.forecasts.records import SampleRequest, SampleResult, SampleSetup
from hyperplane.platforms.local.machine import free_ram

#: Variables that Dask's nannies set for worker processes: libraries use one thread.
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
#: One thread runs all tasks, in the arena of which malloc_trim(3) returns all free memory; it does
#: not return the end of those of other threads, which would hide what the next task needs.
_ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
#: Share of the memory of this machine that a sample leaves free, and seconds between checks.
_LEAST_MEMORY, _CHECK_SECONDS = 0.02, 0.1
#: Program of the process; its arguments are the folder of the package and those of ``main``.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from hyperplane.forecasts.sample_process import main; main(*sys.argv[1:])"
)
#: Modules that every worker process of this package imports when it starts.
_MODULES = ("distributed.nanny", "distributed.shuffle", "hyperplane.guard.memory_recorder")


def run_sample(
    make_request: Callable[[str], SampleRequest],
    environ: Mapping[str, str],
    modules: Sequence[str] = (),
    forked: bool = False,
    runs_main: bool = False,
) -> SampleResult:
    """Run a sample in a new process like a worker process.

    Parameters
    ----------
    make_request : callable
        Returns the sample; receives a folder for files that tasks write, which is then removed.
    environ : mapping of str to str
        Environment variables of worker processes.
    modules : sequence of str
        Modules that worker processes import when they start.
    forked : bool
        Whether worker processes are forked.
    runs_main : bool
        Whether they may run the main module of the program.
    """
    main = spawn_preparation() if runs_main else {}
    with tempfile.TemporaryDirectory(prefix="hyperplane-forecast-") as folder:
        written = Path(folder, "written")
        written.mkdir()
        try:
            content = cloudpickle.dumps(make_request(str(written)))
        except Exception as error:  # noqa: BLE001 - any object of the user may not be picklable
            text = f"a task cannot be pickled: {type(error).__name__}: {error}"[:500]
            return SampleResult((), 0, True, error=text)
        # The current folder is first in the path of interactive sessions, as "".
        path = tuple(each or str(Path.cwd()) for each in sys.path)
        forked = forked and hasattr(os, "fork")
        variables, pool = dict(environ), ""
        if forked and ARROW_POOL not in os.environ:
            # A forked worker gets this variable after Arrow has been loaded, which matters: the
            # buffers of its Parquet writer are then not in the memory of malloc.
            pool = variables.pop(ARROW_POOL, "")
        setup = SampleSetup(path, (*_MODULES, *modules), forked, pool, main)
        request, result = Path(folder, "request"), Path(folder, "result")
        request.write_bytes(pickle.dumps(setup) + content)
        return _run_process(request, result, variables)


def _run_process(request: Path, result: Path, environ: Mapping[str, str]) -> SampleResult:
    variables = {**dict.fromkeys(_ONE_THREAD, "1"), **environ, **os.environ, **_ONE_ARENA}
    # The package may be importable through sys.path only, as with an editable installation.
    root = str(Path(__file__).parents[2])
    errors = result.with_name("errors")
    arguments = [root, str(os.getpid()), str(request), str(result)]
    with errors.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - a module of this package
            # Without the current folder, whose modules would replace those of libraries.
            [sys.executable, "-P", "-c", _PROGRAM, *arguments],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,  # not a pipe, which programs that a task starts would keep open
            # A group, so that an interrupt ends a forked process, too.
            start_new_session=True,
        )
    try:
        has_memory = _wait(process)
    finally:
        # Also programs that tasks have started.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if not has_memory or process.returncode == -signal.SIGKILL:
        text = "its process was killed, because a task took all memory that this machine had left"
        return SampleResult((), 0, True, error=text)
    if process.returncode or not result.exists():
        last = errors.read_text(errors="replace").strip().splitlines()[-1:]
        text = f"its process ended with code {process.returncode}" + "".join(f": {e}" for e in last)
        return SampleResult((), 0, True, error=text[:500])
    found: SampleResult = pickle.loads(result.read_bytes())  # noqa: S301 - of the process above
    return found


def _wait(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of a process; return False if this machine has too little memory left."""
    least = _LEAST_MEMORY * psutil.virtual_memory().total
    while True:
        try:
            process.wait(_CHECK_SECONDS)
        except subprocess.TimeoutExpired:
            if free_ram() < least:
                return False
        else:
            return True
