"""A job and its steps as rows of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hyperplane.jobs.store import job_records
from hyperplane.jobs.store.job_records import Attempt, Job


def list_rows(job: Job, attempts: Sequence[Attempt]) -> list[tuple[str, str]]:
    """Return labels and texts of a job; of a damaged definition the steps that have begun."""
    rows = [("job", f"{job.run_name} ({job.id})"), ("status", job.status)]
    rows += [("reason", job.reason)] if job.reason else []
    rows += [("dashboard", job.dashboard)] if job.dashboard else []
    if job.readable_pipeline is None:
        rows.append(("definition", "damaged; the steps that have begun are shown"))
    latest = {(attempt.step, attempt.chunk): attempt for attempt in attempts}
    chunk_counts = {step.name: step.chunk_count for step in job.steps}
    for step in job_records.name_steps(job, attempts):
        counts = Counter(each.status for (name, _), each in latest.items() if name == step)
        chunk_count = chunk_counts.get(step, 0)
        text = ", ".join(f"{n} {status}" if chunk_count else status for status, n in counts.items())
        rows.append((step, (text or "waits") + (f" of {chunk_count}" if chunk_count else "")))
    return rows
