"""What the steps of a job took, as texts for lists, pages and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hyperplane.core.units import format_bytes, format_duration
from hyperplane.history.code_digest import SHOWN
from hyperplane.history.run_record import RunRecord
from hyperplane.history.run_texts import describe_cost
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.submission.masked_parameters import mask_parameters

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

#: Titles of the texts of :func:`describe_usage`.
USAGE_TITLES = ("peak", "CPU", "read", "written", "cost")


def read_step_records(store: JobStore, job: Job) -> dict[str, RunRecord]:
    """Return the newest record of each step of a job that has one, by its name."""
    # Here, so that commands work without the packages of the store.
    from hyperplane.jobs.store.tables import STEPS

    found = store.runs(job.machine, job_id=job.id, kind=STEPS)
    return {record.step: record for record in reversed(found)}


def show_parameters(job: Job, records: Mapping[str, RunRecord]) -> dict[str, str]:
    """Return the parameters of a job without secrets.

    Records were written where the secrets of the steps were known, so that these are masked, too.
    """
    masked = mask_parameters(job.parameters)
    for record in records.values():
        masked |= {name: text for name, text in record.parameters.items() if name in masked}
    return masked


def describe_usage(record: RunRecord | None) -> tuple[str, ...]:
    """Return what a step took, in the order of the titles; empty texts where that is unknown."""
    if record is None:
        return ("",) * len(USAGE_TITLES)
    peak = max((worker.peak for worker in record.workers), default=0)
    return (
        format_bytes(peak) if peak else "",
        format_duration(record.cpu_seconds) if record.cpu_seconds else "",
        format_bytes(record.read) if record.read else "",
        format_bytes(record.written) if record.written else "",
        describe_cost(record),
    )


def describe_total_cost(records: Iterable[RunRecord]) -> str:
    """Return the cost of all steps whose cost is known, for each currency; empty if of none.

    Examples
    --------
    >>> one = RunRecord(name="r", cluster="", started=0, ended=1, cost=0.5, currency="USD")
    >>> describe_total_cost([one, one.model_copy(update={"cost": None})])
    '0.5 USD, without 1 of 2 steps'
    """
    records = list(records)
    totals: dict[str, float] = {}
    for record in records:
        if record.cost is not None:
            totals[record.currency] = totals.get(record.currency, 0.0) + record.cost
    unknown = sum(record.cost is None for record in records)
    texts = [f"{cost:.3g} {currency}".strip() for currency, cost in totals.items()]
    if texts and unknown:
        texts.append(f"without {unknown} of {len(records)} steps")
    return ", ".join(texts)


def describe_code(records: Mapping[str, RunRecord]) -> list[str]:
    """Return the step and the digest of its code, for each step of which it is known."""
    return [f"{step} {record.code[:SHOWN]}" for step, record in records.items() if record.code]


def list_figures(record: RunRecord | None) -> dict[str, Any]:
    """Return what a step took, for JSON; empty without a record."""
    if record is None:
        return {}
    return {
        "code": record.code,
        "peak": max((worker.peak for worker in record.workers), default=0),
        "cpu_seconds": round(record.cpu_seconds, 3),
        "read": record.read,
        "written": record.written,
        "cost": record.cost,
        "currency": record.currency,
        "versions": record.versions,
    }
