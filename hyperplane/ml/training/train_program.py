"""Public function that runs a training program on this machine, as Cloud ML's local training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.ml.training.run_plan import ProgramRequest, plan_run
from hyperplane.ml.training.run_processes import ProgramRun

if TYPE_CHECKING:
    from distributed import Client


@check_call(outcome="no process was started")
def train_program(
    module_name: str,
    arguments: Sequence[str | int | float | os.PathLike[str]] = (),
    *,
    package_path: str | os.PathLike[str] | None = None,
    job_dir: str | os.PathLike[str] | None = None,
    distributed: bool = False,
    worker_count: int | None = None,
    parameter_server_count: int | None = None,
    evaluator_count: int | None = None,
    start_port: int | None = None,
    fail_fast: bool = False,
    client: Client | None = None,
) -> int:
    """Run a training program as ``gcloud ai-platform local train`` does, here or on a cluster.

    Each process runs ``python -m MODULE_NAME ARGUMENTS`` with the variable ``TF_CONFIG`` and,
    except parameter servers and evaluators, with those of torchrun. The primary uses the standard
    input and output of this process; the output of the others is written to standard error, with
    the name of the process before each line. When the primary ends, all other processes of the run
    are ended, also child processes.

    Parameters
    ----------
    module_name : str
        Module to run, such as ``trainer.task``.
    arguments : list, optional
        Arguments of the program.
    package_path : path, optional
        Folder of the package; by default the current directory. The program runs in its parent,
        which relative paths in ``arguments`` and ``job_dir`` refer to.
    job_dir : path or URL, optional
        Passed to the program as ``--job-dir JOB_DIR``.
    distributed : bool, optional
        Run a primary, workers and parameter servers, which have addresses in ``TF_CONFIG``. Without
        it one process runs, and the following arguments are ignored, with a warning.
    worker_count, parameter_server_count : int, optional
        Number of workers besides the primary, and of parameter servers; by default 2 each.
    evaluator_count : int, optional
        Number of evaluators, which are not in the cluster of ``TF_CONFIG``; by default 0.
    start_port : int, optional
        First of the contiguous ports of primary, parameter servers and workers; by default 27182.
    fail_fast : bool, optional
        End the run when a process other than the primary fails. By default this is only reported.
    client : distributed.Client, optional
        Run the processes on the workers of this cluster, each in one thread, as
        :func:`hyperplane.ml.gang` does; by default on this machine. All workers need the folder of
        the package at the same path. ``start_port`` has no effect and is refused.

    Returns
    -------
    int
        Return code of the primary, negative if a signal ended it; with ``fail_fast``, that of the
        process that failed.

    Raises
    ------
    RequestError
        With every fault of the request, such as ports in use; no process was started.
    GangFailed
        If the cluster lost a process.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from hyperplane.ml import train_program
    >>> package = pathlib.Path(tempfile.mkdtemp(), "trainer")
    >>> package.mkdir()
    >>> _ = (package / "task.py").write_text("import sys; sys.exit(int(sys.argv[1]))")
    >>> train_program("trainer.task", [3], package_path=package)
    3
    """
    request = ProgramRequest(
        module_name=module_name,
        arguments=arguments,
        package_path=package_path,
        job_dir=job_dir,
        distributed=distributed,
        worker_count=worker_count,
        parameter_server_count=parameter_server_count,
        evaluator_count=evaluator_count,
        start_port=start_port,
        fail_fast=fail_fast,
    )
    plan = plan_run(request) if client is None else None
    if ignored := request.ignored_options():
        warn_caller(f"{', '.join(ignored)}: ignored without distributed=True")
    if plan is None:
        from hyperplane.ml.training.cluster_run import run_on_cluster

        assert client is not None  # noqa: S101 - for mypy
        return run_on_cluster(request, client)
    return ProgramRun(plan).run()
