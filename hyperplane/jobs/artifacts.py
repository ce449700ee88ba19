"""List what the steps of jobs have saved, and fetch one of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, JobError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.text_tables import format_columns
from hyperplane.core.units import format_bytes
from hyperplane.jobs.artifact_html import render_artifacts
from hyperplane.jobs.definition.message_formatting import suggest_names
from hyperplane.jobs.job_control import Submitted, to_job_id
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.store.artifact_records import OUTPUT, Artifact, describe_origin
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.store.jobs_home import open_store

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

#: Columns of a printed list, and most names that a message lists.
TITLES = ("name", "step", "kind", "size", "rows", "address")
_MOST_NAMES = 5


class ArtifactList(list[Artifact]):
    """Artifacts as a list, which prints as a table, and has previews in a notebook."""

    def __str__(self) -> str:
        return format_columns(TITLES, map(list_cells, self)) if self else "no artifacts"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return render_artifacts(self)


@check_call
def list_artifacts(job: str | Submitted, step: str | None = None) -> ArtifactList:
    """Return what the steps of a job have saved, in the order in which they have saved it.

    These are outputs of :func:`hyperplane.save`, the output of the job, executed notebooks, and the
    files in the output folders of the steps. They are listed when the attempt has ended that has
    saved them, whether or not it has succeeded.

    Parameters
    ----------
    job : str or Submitted
        The id of the job, a unique prefix of it, a run such as ``nightly#12``, the name of a
        pipeline for its newest job, or the result of the submission.
    step : str, optional
        Only artifacts of this step.

    Returns
    -------
    list of Artifact
        It prints as a table, and a notebook shows it with previews.

    Raises
    ------
    JobError
        If there is no such job.
    RequestError
        If the job has no such step.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step, list_artifacts, submit
    >>> text = 'echo 42 > "$HYPERPLANE_JOB_OUTPUT_FOLDER/answer.txt"'
    >>> step = Step(name="think", kind="command", argv=("bash", "-c", text))
    >>> job = submit(Pipeline.from_steps("artifacts", [step]))
    >>> job.wait()
    'done'
    >>> [(artifact.name, artifact.kind, artifact.size) for artifact in list_artifacts(job.id)]
    [('answer.txt', 'text', 3)]
    """
    check(find_step_faults(step))
    store = open_store()
    found = find_job(store, to_job_id(job))
    names = [each.name for each in found.steps]
    if step is not None and names and step not in names:
        check([Fault("step", repr(step)[:80], f"one of {', '.join(map(repr, names))}")])
    return ArtifactList(read_artifacts(store, found, step))


def find_step_faults(step: object) -> list[Fault]:
    """Return a fault if a value is neither the name of a step nor None."""
    if step is None or isinstance(step, str):
        return []
    return [Fault("step", describe_value(step), "the name of a step")]


def read_artifacts(store: JobStore, job: Job, step: str | None = None) -> list[Artifact]:
    """Return the artifacts of a job, with its output in its present state."""
    found = store.artifacts(job.id, step)
    others = [each for each in found if each.kind != OUTPUT]
    if job.output is None:
        return others
    content = job.output.encode(errors="surrogatepass")
    digest = hashlib.sha256(content).hexdigest()
    same = [each for each in found if each.kind == OUTPUT and each.identity == digest]
    if same:
        others.append(same[-1])
    elif step is None:  # set by a running attempt, by a process of a pod, or from outside
        others.append(Artifact(job.id, "", -1, 0, OUTPUT, OUTPUT, size=len(content)))
    return sorted(others, key=lambda each: each.created or float("inf"))


def choose_artifact(
    job: Job, artifacts: Sequence[Artifact], name: str, chunk: int | None = None
) -> Artifact:
    """Return the artifact with a name, an address, or a name that ends with a text after a slash.

    Raises
    ------
    JobError
        If there is none, or several steps or chunks have one of this name.
    """
    of_chunk = [each for each in artifacts if chunk in (None, each.chunk)]
    matches = [each for each in of_chunk if name in (each.name, each.url)]
    matches = matches or [each for each in of_chunk if each.name.endswith(f"/{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        message = f"several artifacts are named {name!r}: {_list_some(matches)}"
        raise JobError(job.id, f"{message}; choose one by its step, chunk or address")
    missing = f"it has no artifact named {name!r}"
    if chunk is not None:
        missing = f"chunk {chunk} has no artifact named {name!r}"
        if any(name in (each.name, each.url) for each in artifacts):
            others = [each for each in artifacts if name in (each.name, each.url)]
            raise JobError(job.id, f"{missing}; it is an artifact of {_list_some(others)}")
    known = dict.fromkeys(each.name for each in of_chunk)
    advice = suggest_names(name, known) or "'hyperplane job artifacts' lists them"
    raise JobError(job.id, f"{missing}; {advice}")


def _list_some(artifacts: Sequence[Artifact]) -> str:
    texts = [describe_origin(each) for each in artifacts[:_MOST_NAMES]]
    more = f" and {len(artifacts) - _MOST_NAMES:,} more"
    return ", ".join(texts) + (more if len(artifacts) > _MOST_NAMES else "")


def list_cells(artifact: Artifact) -> list[str]:
    """Return the cells of a row of a printed list."""
    return [
        to_plain_line(artifact.name),
        to_plain_line(describe_origin(artifact)),
        artifact.kind,
        "" if artifact.size is None else format_bytes(artifact.size),
        "" if artifact.rows is None else f"{artifact.rows:,}",
        to_plain_line(artifact.url),
    ]


def with_output(job: Job, artifact: Artifact) -> dict[str, Any]:
    """Return the public fields of an artifact, of an output with its text."""
    content = {"content": job.output} if artifact.kind == OUTPUT else {}
    return {**artifact.as_dict(), **content}
