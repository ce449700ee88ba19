"""Documented names of the notebook API: ``from hyperplane import notebook_common as nc``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from hyperplane import config
from hyperplane.cluster import get_cluster, initialize_cluster
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call, stating_outcome
from hyperplane.core.units import is_boolean
from hyperplane.jobs import job_control, job_output, job_summary
from hyperplane.jobs.call_site import attribute_to_caller
from hyperplane.jobs.graphql_client import run_queries
from hyperplane.jobs.job_control import Submitted
from hyperplane.sized_cluster import quickstart
from hyperplane.utils import SlackHelper, is_jhub

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

    from hyperplane.spec.pool import PoolSpec

    #: The configured pools.
    daskpool_candidates: list[PoolSpec]

__all__ = [
    "SlackHelper",
    "cancel_pipeline_job",
    "cancel_pipeline_jobs",
    "checkjobs",
    "daskpool_candidates",
    "get_a_job_output",
    "get_current_job_output",
    "get_dask_cluster",
    "get_previous_job_runs",
    "graphql_operation",
    "graphql_operations",
    "initialize__dask_cluster",
    "initialize_cluster",
    "initialize_dask_cluster",
    "is_jhub",
    "quickstart_dask",
    "set_current_job_output",
    "submit_pipeline_job",
]

#: Largest interval of ``checkjobs`` in seconds: one day. Larger values are considered mistakes.
_MAX_INTERVAL = 86_400

initialize_dask_cluster = initialize_cluster
# The documentation's second example has two underscores.
initialize__dask_cluster = initialize_cluster


@check_call(outcome="nothing was started")
def quickstart_dask(num_workers: int, size: str) -> tuple[Client, Cluster]:
    """Start a number of nodes of one t-shirt size.

    Parameters
    ----------
    num_workers : int
        Number of nodes.
    size : str
        T-shirt size, such as ``"hyperplane-med-high-mem"``, or the name of a pool.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster

    Raises
    ------
    UnknownPool
        If there is no such size, with all sizes.
    """
    return quickstart(num_workers, size)


@check_call
def get_dask_cluster(dask_cluster_name: str) -> Client:
    """Connect to a running cluster that any process of this user started.

    Parameters
    ----------
    dask_cluster_name : str
        Name of the cluster, ``dask-cluster-<uuid4>``.

    Returns
    -------
    distributed.Client
        ``client.shutdown()`` or ``client.cluster.close()`` ends the cluster for all its clients.

    Raises
    ------
    EngineError
        If no such cluster runs.
    """
    return get_cluster(dask_cluster_name).client


@attribute_to_caller
async def submit_pipeline_job(
    jobName: str | None = None,  # noqa: N803 - the documented names
    pipelineYamlPath: str = "",  # noqa: N803
    jobType: str = "basic",  # noqa: N803
    timeout: float | str | None = None,
    active_timeout: float | str | None = None,
    max_retries: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Submitted:
    """Submit a pipeline job, which continues when this session ends.

    Parameters
    ----------
    jobName : str
        Up to 63 letters, digits and ``. _ -``.
    pipelineYamlPath : str
        Path of a pipeline file, a script or a notebook.
    jobType : str
        A documented job type or the name of a pool; other labels cause a warning.
    timeout : float or str, optional
        Limit from submission to the end of the job, in seconds or as text such as ``"2 hours"``;
        -1 for no limit.
    active_timeout : float or str, optional
        Limit from the start of the job to its end; -1 for no limit.
    max_retries : int, optional
        Number of retries after a transient failure; finished steps are not run again.
    parameters : dict, optional
        Names and values that each step finds in its environment, and a notebook also in a cell.

    Returns
    -------
    id, run_id : str
        Identifiers of the job and of this run.

    Raises
    ------
    RequestError
        With every fault of the request; nothing was submitted.
    """
    with stating_outcome("nothing was submitted"):
        try:
            submission = await asyncio.to_thread(
                job_control.new_job,
                pipelineYamlPath,
                name=jobName,
                job_type=jobType,
                timeout=timeout,
                active_timeout=active_timeout,
                max_retries=max_retries,
                parameters=parameters,
            )
        except RequestError as error:
            if type(error) is not RequestError:
                raise
            names = {"path": "pipelineYamlPath", "name": "jobName", "job_type": "jobType"}
            raise RequestError(
                [
                    replace(fault, where=names.get(fault.where, fault.where))
                    for fault in error.faults
                ]
            ) from None
    return await asyncio.to_thread(job_control.submit_job, submission)


def _is_flag(value: Any) -> bool:
    return isinstance(value, int) and value in (0, 1)  # True is 1


@attribute_to_caller
async def checkjobs(
    ids: str | Submitted | Sequence[Any], loop: bool = False, interval: float = 5
) -> str:
    """Report the status of jobs.

    Parameters
    ----------
    ids : list of str
        Ids of jobs, or unique prefixes of ids; a single id needs no list.
    loop : bool
        Whether to wait until all jobs have ended and print each change.
    interval : float
        Seconds between two checks.

    Returns
    -------
    str
        The status of the jobs as text.

    Raises
    ------
    RequestError
        With every unknown id, or if ``loop`` or ``interval`` is invalid.
    """
    faults: list[Fault] = []
    if not _is_flag(loop):
        faults.append(Fault("loop", repr(loop)[:80], "True or False"))
    value: Any = interval  # callers may pass another type
    is_number = isinstance(value, Real) and not is_boolean(interval)
    if not is_number or not 0 <= interval <= _MAX_INTERVAL:
        faults.append(
            Fault("interval", repr(interval)[:80], f"seconds from 0 to {_MAX_INTERVAL:g}")
        )
    check(faults)
    if loop:
        return await job_summary.watch_jobs(ids, interval)
    return (await asyncio.to_thread(job_summary.summarize_jobs, ids))[0]


@attribute_to_caller
async def cancel_pipeline_job(jobID: str | Submitted) -> dict[str, str]:  # noqa: N803
    """Cancel a job and end all processes of its steps.

    Parameters
    ----------
    jobID : str
        Id of the job, or the result of its submission.

    Returns
    -------
    dict
        The ``id`` of the job and its ``status``. A job that had already ended keeps its status.

    Raises
    ------
    JobError
        If there is no such job.
    """
    job = await asyncio.to_thread(job_control.cancel, jobID)
    return {"id": job.id, "status": job.status if job.processed else "cancelled"}


#: The documentation's heading has the plural.
cancel_pipeline_jobs = cancel_pipeline_job


@attribute_to_caller
async def get_a_job_output(jobID: str | Submitted) -> str | None:  # noqa: N803
    """Return the output that a step of a job has set; None if no step has set one.

    Parameters
    ----------
    jobID : str
        Id of the job, or the result of its submission.

    Returns
    -------
    str or None

    Raises
    ------
    JobError
        If there is no such job.
    """
    return await asyncio.to_thread(job_output.get_output, jobID)


@attribute_to_caller
async def set_current_job_output(s: str, verbose: bool = False) -> None:
    """Set the output of the job that the current process belongs to.

    Parameters
    ----------
    s : str
        The output.
    verbose : bool
        Whether to print it.

    Raises
    ------
    RequestError
        If ``s`` is not text, or ``verbose`` is neither True nor False.
    JobError
        If this process is not a step of a job.
    """
    if not _is_flag(verbose):
        check([Fault("verbose", repr(verbose)[:80], "True or False")])
    await asyncio.to_thread(job_output.set_output, s)
    if verbose:
        sys.stdout.write(f"output of job {job_output.current_job_id()}: {s}\n")


@attribute_to_caller
async def get_current_job_output() -> str | None:
    """Return the output that a step of the current job has set; None if no step has set one.

    Returns
    -------
    str or None

    Raises
    ------
    JobError
        If this process is not a step of a job.
    """
    return await asyncio.to_thread(job_output.get_output)


@attribute_to_caller
async def get_previous_job_runs() -> list[dict[str, Any]]:
    """Return earlier runs of the current job's schedule, or else of its name, newest first.

    Returns
    -------
    list of dict
        At most 100 runs, each as a dictionary of its ``id``, ``status`` and other fields.

    Raises
    ------
    JobError
        If this process is not a step of a job.
    """
    return await asyncio.to_thread(job_output.previous_runs)


@attribute_to_caller
async def graphql_operation(gql_queries: str | Sequence[str]) -> list[dict[str, Any]]:
    """Send GraphQL queries to the server of ``hyperplane ui``, one after another.

    The variable ``HYPERPLANE_GRAPHQL_URL`` selects another server.

    Parameters
    ----------
    gql_queries : str or list of str
        Queries and mutations, such as ``createPipelineJob``.

    Returns
    -------
    list of dict
        The data of each response, such as
        ``[{"createPipelineJob": {"id": "...", "status": "pending"}}]``; a list also for one query.

    Raises
    ------
    RequestError
        If a query is not text, or no server runs; nothing was sent.
    QueryFailed
        If the server cannot be reached, or has answered with errors. ``results`` has the data of
        the queries before; those after it were not sent.
    """
    return await asyncio.to_thread(run_queries, gql_queries)


#: The documentation's heading has the plural.
graphql_operations = graphql_operation


def __getattr__(name: str) -> Any:
    # Not cached, because the configuration may change.
    if name == "daskpool_candidates":
        return list(config.pools().values())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
