"""Clusters of this user in the queue of Slurm, by the comment of their jobs."""

from __future__ import annotations

from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.core.errors import EngineError
from hyperplane.platforms.slurm.commands import find_missing_commands, run_command

#: Start of the comment of jobs, which the name of their engine follows.
_COMMENT = "hyperplane:"
#: Fields of a line of squeue: the comment and the state have no "|", the name may have any text.
_FORMAT = "--format=%k|%i|%T|%V|%j"
#: In the message of Slurm's commands on a machine that belongs to no Slurm.
_NOT_CONFIGURED = "fetch_config"
#: Seconds within which jobs have to be cancelled.
_CANCEL_SECONDS = 60.0


def job_comment(engine: str) -> str:
    """Return the comment of the jobs of an engine's clusters."""
    return f"{_COMMENT}{engine}"


def list_jobs(engine: str, seconds: float) -> list[ListedCluster]:
    """Return the clusters of an engine in the queue; an empty list without Slurm's commands."""
    if find_missing_commands():
        return []
    try:
        command = ["squeue", "--me", "--noheader", _FORMAT]
        result = run_command(command, timeout=seconds)
    except OSError as error:
        raise EngineError(engine, f"the queue of Slurm cannot be read: {error}") from error
    if result.exit_code:
        if _NOT_CONFIGURED in result.message:
            return []
        raise EngineError(engine, f"the queue of Slurm cannot be read: {result.message}")
    return parse_listing(engine, result.output)


def parse_listing(engine: str, output: str) -> list[ListedCluster]:
    """Return the clusters in the output of squeue.

    Examples
    --------
    >>> line = "hyperplane:slurm|42|RUNNING|2026-01-02T03:04:05|flights"
    >>> [cluster] = parse_listing("slurm", line)
    >>> cluster.name, cluster.status, cluster.jobs
    ('flights', '1 RUNNING', ('42',))
    """
    jobs: dict[str, list[tuple[str, str, str]]] = {}
    for line in output.splitlines():
        comment, *fields = line.strip().split("|", 4)
        if comment == job_comment(engine) and len(fields) == 4:
            job, state, submitted, name = fields
            jobs.setdefault(name, []).append((job, state, submitted))
    clusters = []
    for name, found in jobs.items():
        states = [state for _, state, _ in found]
        status = ", ".join(f"{states.count(state)} {state}" for state in sorted({*states}))
        numbers = tuple(job for job, _, _ in found)
        started = min(submitted for _, _, submitted in found)
        clusters.append(ListedCluster(name, engine, "Slurm", status, started, numbers))
    return clusters


def cancel_listed(cluster: ListedCluster) -> None:
    """Cancel the jobs of a cluster; raise an EngineError if Slurm does not do it."""
    try:
        result = run_command(["scancel", *cluster.jobs], timeout=_CANCEL_SECONDS)
    except OSError as error:
        raise EngineError(cluster.engine, str(error)) from error
    if result.exit_code:
        raise EngineError(cluster.engine, result.message)
