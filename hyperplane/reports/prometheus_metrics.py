"""Figures of jobs, their supervisor and running clusters, in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hyperplane.clusters import records
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.optional import need
from hyperplane.core.units import gb_to_bytes
from hyperplane.jobs import supervisor_client
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS, OPEN, Job, count_seconds
from hyperplane.jobs.store.jobs_home import this_machine

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

#: Most pipelines that have figures, each of which is a time series: those with jobs that have not
#: ended, then those of the newest jobs.
_MAX_PIPELINES = 500


def format_metrics(store: JobStore) -> str:
    """Return the figures of this user's jobs, supervisor and clusters on this machine.

    Parameters
    ----------
    store : JobStore
        Store of the jobs.

    Raises
    ------
    MissingPackage
        Without prometheus_client, which is in the extra ``ui``.
    """
    client = need("prometheus_client", "ui")
    registry = client.CollectorRegistry()
    _count_jobs(client, registry, store)
    _describe_clusters(client, registry, records.read_all())
    gauge = _make_gauge(client, registry, "supervisor_up", "Whether the supervisor of jobs runs.")
    gauge.set(supervisor_client.supervisor_pid() is not None)
    text: str = client.generate_latest(registry).decode()
    return text


def _make_gauge(client: Any, registry: Any, name: str, text: str, *labels: str) -> Any:
    # Gauges also for numbers of jobs: they fall when old jobs are removed.
    return client.Gauge(f"hyperplane_{name}", text, labels, registry=registry)


def _count_jobs(client: Any, registry: Any, store: JobStore) -> None:
    all_jobs = store.find(machine=this_machine())
    jobs = _select(all_jobs)
    count = _make_gauge(
        client, registry, "jobs", "Jobs in the store, by status.", "pipeline", "status"
    )
    for (pipeline, status), number in Counter(
        (job.pipeline_name, job.status) for job in jobs
    ).items():
        count.labels(pipeline, status).set(number)
    ended = _make_gauge(
        client, registry, "job_last_end_timestamp_seconds",
        "When the last job with a status ended.", "pipeline", "status",
    )  # fmt: skip
    duration = _make_gauge(
        client, registry, "job_last_duration_seconds",
        "Seconds that the last job that is done ran, also before it was resumed.", "pipeline",
    )  # fmt: skip
    for job in sorted((job for job in jobs if job.ended), key=lambda job: job.ended):
        ended.labels(job.pipeline_name, job.status).set(job.ended)
        seconds = count_seconds(job, job.ended)
        if job.status == DONE and seconds is not None:
            duration.labels(job.pipeline_name).set(seconds)
    waiting = [job.requested for job in all_jobs if job.status in OPEN and not job.started]
    wait = _make_gauge(
        client, registry, "job_longest_wait_seconds",
        "Seconds since the submission of the job that has waited longest for its start.",
    )  # fmt: skip
    wait.set(max(0.0, time.time() - min(waiting)) if waiting else 0.0)
    running = _make_gauge(
        client, registry, "steps_running", "Steps and chunks that run.", "pipeline", "step"
    )
    for job in jobs:
        if job.status == IN_PROGRESS:
            for attempt in store.attempts(job.id):
                if attempt.status == IN_PROGRESS:
                    running.labels(job.pipeline_name, attempt.step).inc()


def _select(jobs: list[Job]) -> list[Job]:
    """Return the jobs of at most :data:`_MAX_PIPELINES` pipelines; the newest come first."""
    open_first = sorted(jobs, key=lambda job: job.status not in OPEN)  # keeps the order within each
    names = dict.fromkeys(job.pipeline_name for job in open_first)
    kept = set(list(names)[:_MAX_PIPELINES])
    return [job for job in jobs if job.pipeline_name in kept]


def _describe_clusters(client: Any, registry: Any, clusters: Iterable[ClusterRecord]) -> None:
    labels = ("cluster", "engine")
    texts = {
        "cluster_workers": "Planned worker processes of a running cluster.",
        "cluster_threads": "Planned threads of all its worker processes.",
        "cluster_memory_limit_bytes": "Planned memory of all its worker processes.",
    }
    workers, threads, memory = (
        _make_gauge(client, registry, name, text, *labels) for name, text in texts.items()
    )
    for cluster in clusters:
        values = cluster.name, cluster.engine
        workers.labels(*values).set(cluster.workers)
        threads.labels(*values).set(cluster.threads)
        memory.labels(*values).set(gb_to_bytes(cluster.ram_gb))
