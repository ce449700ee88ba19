"""Find a job by its id, a prefix of it, the name of its pipeline, a run number, or ``latest``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.core.errors import JobError
from hyperplane.jobs.definition.message_formatting import suggest_names
from hyperplane.jobs.store.jobs_home import this_machine

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_records import Job
    from hyperplane.jobs.store.job_store import JobStore

#: Name of the most recently submitted job of this user on this machine.
LATEST = "latest"
#: A run: the name of a pipeline and the number, at most that of a 32-bit integer.
_RUN = re.compile(r"(?P<pipeline>.+?)\s*#(?P<number>[1-9][0-9]{0,9})", re.ASCII | re.DOTALL)
_MAX_NUMBER = 2**31 - 1
#: Most candidates of an ambiguous name that a message lists, and most names to suggest from.
_MAX_LISTED, _MAX_NAMES = 5, 250
#: Names that ``submit`` generates.
_GENERATED = re.compile(r"[a-z]+_[a-z]+_[0-9a-f]{4}")
#: Characters of an id in lists.
_LISTED_LENGTH = 8


def find_given_name(job: Job) -> str:
    """Return the name that a job was submitted with; empty if ``submit`` has generated it.

    A generated name repeats a part of the id, so that lists do not show it.
    """
    is_generated = _GENERATED.fullmatch(job.name) and job.name.endswith(f"_{job.id[:4]}")
    return "" if is_generated else job.name


def find_job(store: JobStore, reference: str) -> Job:
    """Return the job that a reference names.

    A reference is an id or a unique prefix of it, which has eight characters or more for a job of
    another user or machine; ``nightly #12`` or ``nightly#12``, a run of a pipeline; the name of a
    pipeline or job, for the newest such job of this user on this machine; or ``latest``, for the
    newest job of this user on this machine. A complete id has priority.

    Parameters
    ----------
    store : JobStore
        The store.
    reference : str
        The reference.

    Raises
    ------
    JobError
        If there is no such job, or the reference names several.
    """
    if exact := store.get_many([reference]):
        return exact[reference]
    candidates = {job.id: job for job in _find_candidates(store, reference)}
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if candidates:
        raise JobError(reference, _describe_ambiguity(list(candidates.values())))
    raise JobError(reference, f"no such job{_suggest(store, reference)}")


def find_jobs(store: JobStore, references: Sequence[str]) -> list[Job]:
    """Return the jobs that references name, each once.

    Raises
    ------
    JobError
        With every reference that does not name exactly one job.
    """
    jobs: dict[str, Job] = {}
    errors: list[JobError] = []
    for reference in references:
        try:
            job = find_job(store, reference)
            jobs.setdefault(job.id, job)
        except JobError as error:
            errors.append(error)
    if len(errors) > 1:
        raise JobError("", "\n".join(map(str, errors)))
    if errors:
        raise errors[0]
    return list(jobs.values())


def _find_candidates(store: JobStore, reference: str) -> list[Job]:
    """Return the job of each meaning of a reference, and all whose ids begin with it."""
    reference = reference.strip()
    if not reference:
        return []
    # A shared store has jobs of others, which a name must not cancel by accident.
    mine = this_machine()
    found = store.find(any_name=reference, machine=mine, limit=1)
    if reference == LATEST:
        found += store.find(machine=mine, limit=1)
    if (run := _RUN.fullmatch(reference)) and int(run["number"]) <= _MAX_NUMBER:
        found += store.find(pipeline=run["pipeline"], number=int(run["number"]), limit=1)
    # A short prefix, such as "cafe", may be meant as the name of a pipeline.
    owner = mine if len(reference) < _LISTED_LENGTH else None
    return found + store.find(id_prefix=reference, machine=owner, limit=_MAX_LISTED + 1)


def _describe_ambiguity(jobs: Sequence[Job]) -> str:
    listed = "".join(
        f"\n  {job.id}  {job.run_name} ({job.name}), {job.status}" for job in jobs[:_MAX_LISTED]
    )
    more = "\n  and more" if len(jobs) > _MAX_LISTED else ""
    return f"several jobs match; use a longer prefix of an id, or the whole id:{listed}{more}"


def _suggest(store: JobStore, reference: str) -> str:
    advice = "'hyperplane job list' shows the ids and names"
    name, is_run = reference.strip(), _RUN.fullmatch(reference.strip())
    if is_run:
        name = is_run["pipeline"]
        if newest := store.find(pipeline=name, limit=1):
            number = newest[0].number
            known = (
                f"the newest run is {newest[0].run_name}" if number else "its runs have no number"
            )
            return f"; {known}. {advice}"
    elif store.find(any_name=name, limit=1):
        mine = this_machine()
        return f" of {mine}; give the run number or the id of a job of another user. {advice}"
    if name == LATEST:
        return f": {this_machine()} has submitted none. {advice}"
    names = [*store.names(_MAX_NAMES), LATEST]
    suggestion = suggest_names(name, names)
    return f"; {suggestion} {advice}" if suggestion else f". {advice}"
