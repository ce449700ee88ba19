"""Public function that runs n processes together on the workers of a cluster."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane.core.active_cluster import find_client_faults
from hyperplane.core.argument_checks import describe_value, find_count_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import check_call

if TYPE_CHECKING:
    from distributed import Client

#: Most processes of a gang.
_MOST = 10_000


@check_call(outcome="no process was started")
def gang(
    client: Client,
    function: Callable[..., Any],
    n: int,
    *args: Any,
    data: Any = None,
    checkpoints: str | os.PathLike[str] | None = None,
    max_retries: int = 0,
    timeout: float | None = None,
    logs: bool | str | os.PathLike[str] = True,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Run a function in n processes that start together and end together.

    Each process is a rank with its own number, ``RANK``, from 0. It is a child process of a worker
    of the cluster and uses one of its threads. Ranks are distributed evenly over the workers. The
    environment has the variables of torchrun, so that ``torch.distributed.init_process_group()``
    needs no arguments, and ``TF_CONFIG`` of TensorFlow.

    If a rank fails, is killed or loses its worker, all others are ended within seconds, and all
    start again, at most ``max_retries`` times.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    function : callable
        Function that each process calls with ``args``.
    n : int
        Number of processes, at most the number of threads of the cluster.
    *args : object
        Arguments of the function, the same for all ranks.
    data : Dask collection, XShards, or list of futures or delayed objects, optional
        Partitions that are divided among the ranks, in order. The function gets the list of its
        partitions as the first argument. They are sent from worker to worker, not through the
        client. Arrays have chunks of whole rows.
    checkpoints : str or path, optional
        Folder or URL that the function finds in ``HYPERPLANE_CHECKPOINTS``; the same after a
        restart. All workers must be able to use it.
    max_retries : int
        Maximum number of restarts.
    timeout : float, optional
        Seconds in which all processes must have started, also after each restart; by default there
        is no limit. Gangs wait for the threads of other gangs and for running tasks.
    logs : bool, str or path
        Whether to print the output of the ranks, with ``rank 0 |`` before each line, or a folder
        for the files ``rank-0.log`` and so on. At most 10 MB of each rank.
    env : mapping, optional
        More environment variables of the processes.

    Returns
    -------
    list
        Results of the function, in order of rank.

    Raises
    ------
    RequestError
        If an argument is invalid, or the cluster has fewer than n threads.
    GangFailed
        If a rank failed and no restarts are left. The message has the rank, its worker, exit code
        or signal, the traceback and the last lines of its output.
    GangTimeout
        If the processes could not start within ``timeout``.

    Examples
    --------
    >>> import os
    >>> from hyperplane import plan_cluster, start
    >>> from hyperplane.ml import gang
    >>> client, cluster = start(plan_cluster(1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5))
    >>> def share(numbers):
    ...     return sum(numbers[int(os.environ["RANK"]) :: int(os.environ["WORLD_SIZE"])])
    >>> gang(client, share, 2, [1, 2, 3, 4])
    [4, 6]
    >>> client.close(); cluster.close()
    """
    faults = [
        *find_client_faults(client),
        *find_count_faults("n", n, 1, _MOST),
        *find_count_faults("max_retries", max_retries, 0),
        *_find_setting_faults(checkpoints, timeout, logs, env),
    ]
    faults += _find_function_faults(function, args)
    shards = sys.modules.get("hyperplane.ml.shards.xshards")
    if shards is not None and isinstance(data, shards.XShards):
        data = list(data.parts)
    if data is not None:
        from hyperplane.clusters.dask.gang.gang_data import find_data_faults

        faults += find_data_faults(data, n)
    check(faults)
    # Imported here because it loads distributed.
    from hyperplane.clusters.dask.gang.gang_run import GangRequest, run_gang

    return run_gang(
        client,
        GangRequest(
            function=function,
            n=int(n),
            args=args,
            data=data,
            checkpoints="" if checkpoints is None else os.fspath(checkpoints),
            max_retries=int(max_retries),
            timeout=None if timeout is None else float(timeout),
            logs=logs if isinstance(logs, bool) else Path(logs),
            environment=dict(env or {}),
        ),
    )


def _find_function_faults(function: Any, args: Sequence[Any]) -> list[Fault]:
    if not callable(function):
        return [Fault("function", describe_value(function), "a function")]
    return find_pickle_faults("function", function, args)


def _find_setting_faults(checkpoints: Any, timeout: Any, logs: Any, env: Any) -> list[Fault]:
    faults = []
    if checkpoints is not None and not _is_path(checkpoints):
        allowed = "the path or URL of a folder"
        faults.append(Fault("checkpoints", describe_value(checkpoints), allowed))
    is_number = isinstance(timeout, Real) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout < math.inf):
        faults.append(Fault("timeout", describe_value(timeout), "seconds, more than 0"))
    if not isinstance(logs, bool) and not _is_path(logs):
        faults.append(Fault("logs", describe_value(logs), "True, False or the path of a folder"))
    if env is not None:
        faults += _find_variable_faults(env)
    return faults


def _is_path(value: Any) -> bool:
    if not isinstance(value, str | os.PathLike):
        return False
    text = os.fspath(value)
    return isinstance(text, str) and _is_variable_text(text) and bool(text.strip())


def _find_variable_faults(env: Any) -> Sequence[Fault]:
    if not isinstance(env, Mapping):
        return [Fault("env", describe_value(env), "a mapping of names to texts")]
    return [
        Fault(f"env[{describe_value(name)}]", "", "the name and the value must be texts")
        for name, value in env.items()
        if not (
            isinstance(name, str)
            and isinstance(value, str)
            and name
            and "=" not in name
            and _is_variable_text(name + value)
        )
    ]


def _is_variable_text(text: str) -> bool:
    """Return whether the operating system accepts a text in paths and variables."""
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text
