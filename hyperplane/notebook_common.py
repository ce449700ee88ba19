"""The documented names of the notebook API; ``from hyperplane import notebook_common as nc``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from hyperplane import config
from hyperplane.cluster import get_cluster, initialize_cluster, quickstart
from hyperplane.errors import Fault, RequestError, check
from hyperplane.jobs import job_summary, outputs, submitting
from hyperplane.jobs.call_site import attribute_to_caller
from hyperplane.jobs.submitting import Submitted
from hyperplane.public_calls import check_call, stating
from hyperplane.units import is_truth_value
from hyperplane.utils import SlackHelper, is_jhub

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

    from hyperplane.spec.pool import PoolSpec

    #: The pools that there are now.
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
    "initialize__dask_cluster",
    "initialize_cluster",
    "initialize_dask_cluster",
    "is_jhub",
    "quickstart_dask",
    "set_current_job_output",
    "submit_pipeline_job",
]

#: Seconds between two looks at jobs: a day, of which more is a slip.
_LONGEST = 86_400

initialize_dask_cluster = initialize_cluster
# The documentation's second example has two underscores, on every version of the page.
initialize__dask_cluster = initialize_cluster


@check_call(outcome="nothing was started")
def quickstart_dask(num_workers: int, size: str) -> tuple[Client, Cluster]:
    """Start so many nodes of one t-shirt size.

    Parameters
    ----------
    num_workers : int
        Nodes.
    size : str
        T-shirt name, such as ``"hyperplane-med-high-mem"``, or a pool.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster

    Raises
    ------
    UnknownPool
        With the sizes that there are.
    """
    return quickstart(num_workers, size)


@check_call
def get_dask_cluster(dask_cluster_name: str) -> Client:
    """Connect to a running cluster that any process of this user started.

    Parameters
    ----------
    dask_cluster_name : str
        Its name, ``dask-cluster-<uuid4>``.

    Returns
    -------
    distributed.Client
        ``client.shutdown()`` or ``client.cluster.close()`` ends the cluster for everybody.

    Raises
    ------
    EngineError
        When no such cluster runs.
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
    """Submit a pipeline job, which goes on when this session ends.

    Parameters
    ----------
    jobName : str
        Up to 63 letters, digits and ``. _ -``.
    pipelineYamlPath : str
        A pipeline file, or a single script or notebook.
    jobType : str
        A documented type or a pool; other labels draw a warning.
    timeout : float or str, optional
        Seconds, or text such as ``"2 hours"``, from now until it must have ended; -1 for no limit.
    active_timeout : float or str, optional
        The same from when its first step starts; -1 for no limit.
    max_retries : int, optional
        How often it is tried again, from its finished steps, after a fault that may pass.
    parameters : dict, optional
        Names and values; each step finds them in its environment, a notebook in a cell, too.

    Returns
    -------
    id, run_id : str
        Of the job, and of this run of it.

    Raises
    ------
    RequestError
        With all that is wrong; nothing was submitted.
    """
    with stating("nothing was submitted"):
        try:
            made = await asyncio.to_thread(
                submitting.new_job,
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
                [replace(one, where=names.get(one.where, one.where)) for one in error.faults]
            ) from None
    return await asyncio.to_thread(submitting.submit_job, made)


def _is_switch(value: Any) -> bool:
    return isinstance(value, int) and value in (0, 1)  # True is 1


@attribute_to_caller
async def checkjobs(
    ids: str | Submitted | Sequence[Any], loop: bool = False, interval: float = 5
) -> str:
    """How jobs stand.

    Parameters
    ----------
    ids : list of str
        Of the jobs; the beginning of an id is enough, and one job needs no list.
    loop : bool
        Whether to look until all have ended; it is shown whenever it has changed.
    interval : float
        Seconds between two looks.

    Returns
    -------
    str
        A text to print.

    Raises
    ------
    RequestError
        With every id that no job has, or when ``loop`` or ``interval`` is none of these.
    """
    faults: list[Fault] = []
    if not _is_switch(loop):
        faults.append(Fault("loop", repr(loop)[:80], "True or False"))
    given: Any = interval
    is_number = isinstance(given, Real) and not is_truth_value(interval)
    if not is_number or not 0 <= interval <= _LONGEST:
        faults.append(Fault("interval", repr(interval)[:80], f"seconds from 0 to {_LONGEST:g}"))
    check(faults)
    if loop:
        return await job_summary.watch_jobs(ids, interval)
    return (await asyncio.to_thread(job_summary.summarize_jobs, ids))[0]


@attribute_to_caller
async def cancel_pipeline_job(jobID: str | Submitted) -> dict[str, str]:  # noqa: N803
    """End a job, with all processes of its steps.

    Parameters
    ----------
    jobID : str
        The job: its id, or what submitting it gave.

    Returns
    -------
    dict
        Its ``id`` and ``status``, which is that of a job that had ended already.
    """
    job = await asyncio.to_thread(submitting.cancel, jobID)
    return {"id": job.id, "status": job.status if job.processed else "cancelled"}


#: The documentation's heading has the plural.
cancel_pipeline_jobs = cancel_pipeline_job


@attribute_to_caller
async def get_a_job_output(jobID: str | Submitted) -> str | None:  # noqa: N803
    """What a step of a job has set as its output; None when none has."""
    return await asyncio.to_thread(outputs.get_output, jobID)


@attribute_to_caller
async def set_current_job_output(s: str, verbose: bool = False) -> None:
    """Set the output of the job that this is a step of; ``verbose`` shows it, too."""
    if not _is_switch(verbose):
        check([Fault("verbose", repr(verbose)[:80], "True or False")])
    await asyncio.to_thread(outputs.set_output, s)
    if verbose:
        sys.stdout.write(f"output of job {outputs.current_job_id()}: {s}\n")


@attribute_to_caller
async def get_current_job_output() -> str | None:
    """What a step of this job has set as its output."""
    return await asyncio.to_thread(outputs.get_output)


@attribute_to_caller
async def get_previous_job_runs() -> list[dict[str, Any]]:
    """Earlier runs of this job, the last first: of its schedule, or else of its name."""
    return await asyncio.to_thread(outputs.previous_runs)


#: Documented names that are not provided yet, and what does the same here.
_MISSING = {
    "graphql_operation": "submit_pipeline_job, checkjobs and cancel_pipeline_job need no server; "
    "hyperplane.jobs.list_jobs lists jobs",
}
_MISSING["graphql_operations"] = _MISSING["graphql_operation"]


def __getattr__(name: str) -> Any:
    # Read afresh each time, as the configuration is.
    if name == "daskpool_candidates":
        return list(config.pools().values())
    missing = f": it is not provided; {_MISSING[name]}" if name in _MISSING else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{missing}")


def __dir__() -> list[str]:
    return list(__all__)
