"""Records of the runs of a job's steps: memory and CPU of each pool that a step had."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hyperplane.core.errors import JobStoreError
from hyperplane.core.units import gb_to_bytes
from hyperplane.history.figures import OUT_OF_MEMORY, WorkerUsage, add_usage, count_cause
from hyperplane.history.run_record import PlanSummary, RunRecord, new_run_name
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_facts import AttemptFacts, read_facts
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.failure_kinds import MEMORY
from hyperplane.jobs.step_wrapper import USAGE_SUFFIX
from hyperplane.jobs.store.job_records import Attempt, Job
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.submission.masked_parameters import mask_parameters

_log = logging.getLogger(__name__)
#: Suffix of the folder in which a step's clusters leave their records.
RECORDS_SUFFIX = ".runs"
#: Most records of clusters that are taken from one attempt.
_MOST_CLUSTERS = 20
#: Bytes of the largest such record: one of 1,000 workers and operations has about 1 MB.
_LARGEST_RECORD = 10_000_000
#: Name in records of the memory of a step without a pool.
NO_POOL = "no pool"
#: Growth of the peak from which on the record of a step in many chunks is written again.
_NOTABLE = 1.02
#: Chunks up to which the record is written after each of them.
_FEW_CHUNKS = 100


class StepUsage(NamedTuple):
    """What the program of an attempt took; zeros where that is unknown."""

    peak: int = 0
    cpu_seconds: float = 0.0
    busy_cores: float = 0.0
    read: int = 0
    written: int = 0


def read_usage(command: AttemptCommand) -> StepUsage:
    """Read what the wrapper of a step has measured; that of versions before 0.2 counts no bytes."""
    with suppress(OSError, ValueError, TypeError):
        peak, cpu, cores, *counts = command.file(USAGE_SUFFIX).read_text().split()
        return StepUsage(int(peak), float(cpu), float(cores), *map(int, counts))
    return StepUsage()


def _usage_of_rank(step: Step, runner: str, usage: StepUsage) -> StepUsage:
    """Return what one process of a gang took, whose resources are those of the step."""
    ranks = max(1, step.gang_size)
    if runner in ("kubernetes", "vertex"):
        return usage  # of the machine or pod that took most
    if ranks > 1 and runner != "local":
        return StepUsage()  # its processes are on other nodes, where they are not measured
    return usage._replace(peak=usage.peak // ranks, busy_cores=usage.busy_cores / ranks)


class StepRunRecorder:
    """Writer of the records of one job's steps.

    Parameters
    ----------
    store : JobStore
        Store of the records.
    job : Job
        The job.
    secrets : collection of str
        Secrets of its steps, which are masked in its parameters.
    """

    def __init__(self, store: JobStore, job: Job, secrets: Collection[str] = ()) -> None:
        self._store, self._job = store, job
        self._parameters = mask_parameters(job.parameters, secrets)
        self._records: dict[str, RunRecord] = {}
        self._written: dict[str, int] = {}

    def record(self, step: Step, attempt: Attempt, command: AttemptCommand, pool: str) -> None:
        """Add an attempt that has ended, and the clusters that it has started.

        ``step`` has the sizes of the pool of this name in place of it.
        """
        clusters = self._take_clusters(step, attempt, command)
        usage = _usage_of_rank(step, self._job.runner, read_usage(command))
        facts = read_facts(command)
        record = self._add_attempt(step, attempt, usage, pool, facts)
        record = self._add_cost(record, step, attempt, command, facts)
        self._records[step.name] = record
        if self._is_worth_writing(step, record):
            self._written[step.name] = max(worker.peak for worker in record.workers)
            self._save(record)
        for cluster in clusters:
            self._save(cluster)

    def _save(self, record: RunRecord) -> None:
        try:
            self._store.save_run(record, self._job.machine)
        except JobStoreError as error:  # the job goes on; the next run is sized by older records
            _log.warning("the record of %s was not stored: %s", record.label, error)

    def _is_worth_writing(self, step: Step, record: RunRecord) -> bool:
        if step.chunk_count <= _FEW_CHUNKS or step.name not in self._written:
            return True
        peak = max(worker.peak for worker in record.workers)
        return peak > _NOTABLE * self._written[step.name] or record.exit_reason == OUT_OF_MEMORY

    def _names(self, step: Step) -> dict[str, Any]:
        """Return the fields of a record that say what the run is of."""
        job = self._job
        return {
            "job": job.id, "pipeline": job.pipeline.name, "step": step.name,
            "run": "" if job.number is None else job.run_name, "parameters": self._parameters,
        }  # fmt: skip

    def _add_cost(
        self,
        record: RunRecord,
        step: Step,
        attempt: Attempt,
        command: AttemptCommand,
        facts: AttemptFacts,
    ) -> RunRecord:
        """Return a record with the cost of one more attempt; without one if a cost is unknown."""
        known = self._records.get(step.name)
        if facts.price is None or (known and (known.cost is None or not known.currency)):
            return record
        if known and known.currency != facts.currency:
            return record
        started = attempt.started
        with suppress(OSError):  # when it began to run: time in a queue costs nothing
            started = max(started, command.file(".pid").stat().st_mtime)
        hours = max(0.0, attempt.ended - started) / 3600
        cost = hours * facts.price * max(1, step.gang_size) + ((known and known.cost) or 0.0)
        return record.model_copy(update={"cost": cost, "currency": facts.currency})

    def _add_attempt(
        self, step: Step, attempt: Attempt, usage: StepUsage, pool: str, facts: AttemptFacts
    ) -> RunRecord:
        """Return the record of a step with one more attempt."""
        ram_gb = step.resources.ram_gb
        new = WorkerUsage(
            name=pool or NO_POOL,
            limit=0 if ram_gb is None else gb_to_bytes(ram_gb),
            peak=usage.peak,
            demand=usage.peak,
            cpu_seconds=usage.cpu_seconds,
            busy_cores=usage.busy_cores,
            read=usage.read,
            written=usage.written,
        )
        if attempt.fault == MEMORY:
            count_cause(new, OUT_OF_MEMORY)
            new.restarts = 1
        known = self._records.get(step.name)
        workers = {worker.name: replace(worker) for worker in (known.workers if known else ())}
        if new.name in workers:
            add_usage(new, workers.pop(new.name))
        started = known.started if known else attempt.started
        return RunRecord(
            name=known.name if known else new_run_name(self._label(step, attempt), started),
            cluster="",
            started=started,
            ended=max(attempt.ended, known.ended if known else 0.0),
            exit_reason=OUT_OF_MEMORY if attempt.fault == MEMORY else attempt.status,
            plan=PlanSummary(engine=self._job.runner, pool=pool, nodes=1),
            workers=(*workers.values(), new),
            code=facts.code,
            versions=dict(facts.versions),
            **self._names(step),
        )

    def _label(self, step: Step, attempt: Attempt) -> str:
        """Return words for the name of a record that no other attempt of the job has."""
        words = f"{self._job.pipeline.name}-{step.name}"
        plain = "".join(each if each.isalnum() else "-" for each in words)[:100]
        unit = f"{step.name}\n{attempt.chunk}\n{attempt.number}"
        return f"{plain}-{hashlib.sha256(unit.encode()).hexdigest()[:8]}"

    def _take_clusters(
        self, step: Step, attempt: Attempt, command: AttemptCommand
    ) -> list[RunRecord]:
        """Return the records of the clusters of an attempt, and remove their files."""
        folder = command.file(RECORDS_SUFFIX)
        names = {**self._names(step), "code": read_facts(command).code}
        found = []
        for file in sorted(folder.glob("*.json"))[:_MOST_CLUSTERS]:
            # A step can write anything there, also JSON that is nested too deeply.
            with suppress(OSError, ValueError, RecursionError):
                record = RunRecord.from_json(_read_record(file))
                if record.cluster:
                    found.append(record.model_copy(update=names))
        shutil.rmtree(folder, ignore_errors=True)
        ram_gb = (step.cluster or {}).get("ram_gb_per_proc")
        is_known = any(record.killed for record in found)
        if attempt.fault == MEMORY and isinstance(ram_gb, int | float) and not is_known:
            found.append(self._describe_killed(step, attempt, gb_to_bytes(float(ram_gb)), names))
        return found[::-1]

    def _describe_killed(
        self, step: Step, attempt: Attempt, ram: int, names: dict[str, Any]
    ) -> RunRecord:
        """Return the record of a cluster that has ended for memory and has left none."""
        worker = WorkerUsage(name="0", limit=ram, peak=ram, demand=ram, restarts=1)
        count_cause(worker, OUT_OF_MEMORY)
        cluster = f"{self._label(step, attempt)}-cluster"
        return RunRecord(
            name=new_run_name(cluster, attempt.started),
            cluster=cluster,
            started=attempt.started,
            ended=attempt.ended,
            exit_reason=OUT_OF_MEMORY,
            plan=PlanSummary(ram_per_proc=ram, pool=str((step.cluster or {}).get("pool") or "")),
            workers=(worker,),
            **names,
        )


def _read_record(file: Path) -> bytes:
    """Return the content of a record's file.

    Raises
    ------
    ValueError
        If it is no regular file, which may never end or block, or is too large for a record.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_RECORD:
            raise ValueError(f"{file} is no record of a run")
        return opened.read(_LARGEST_RECORD)


def records_folder(prefix: Path) -> str:
    """Return the folder in which the clusters of an attempt leave their records."""
    return str(prefix.with_name(prefix.name + RECORDS_SUFFIX))
