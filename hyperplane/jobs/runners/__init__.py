"""Jobs for other places: what a scheduler gets, as text, to look at and to submit."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from hyperplane.errors import Fault, RequestError, check
from hyperplane.jobs.definition.wording import did_you_mean, shown

if TYPE_CHECKING:
    from hyperplane.jobs.runners.base import Document, Runner
    from hyperplane.jobs.states import Job

#: Runner -> where its class is.
RUNNERS = {
    "slurm": "hyperplane.jobs.runners.slurm:Slurm",
    "kubernetes": "hyperplane.jobs.runners.kubernetes:Kubernetes",
}


def load(name: str, **options: Any) -> Runner:
    """The runner of a name, with options of its own.

    Parameters
    ----------
    name : {"slurm", "kubernetes"}
        Which one.
    **options
        What the runner takes: ``python`` for Slurm, ``image`` and ``root`` for Kubernetes.

    Returns
    -------
    Runner

    Raises
    ------
    RequestError
        When there is none of that name, or it has no such options.
    """
    if name not in RUNNERS:
        advice = did_you_mean(str(name), RUNNERS)
        raise RequestError([Fault("runner", shown(name), "one of " + ", ".join(RUNNERS), advice)])
    module, _, attribute = RUNNERS[name].partition(":")
    kind: Any = getattr(importlib.import_module(module), attribute)
    known = [field.name for field in dataclasses.fields(kind)]
    check(
        Fault(
            one, "an option", f"an option of {name}: {', '.join(known)}", did_you_mean(one, known)
        )
        for one in options
        if one not in known
    )
    runner: Runner = kind(**options)
    return runner


def render(name: str, job: Job, **options: Any) -> list[Document]:
    """What a scheduler gets for a job; nothing is submitted, and nothing is written.

    Parameters
    ----------
    name : {"slurm", "kubernetes"}
        The runner.
    job : Job
        The job.
    **options
        As for :func:`load`.

    Returns
    -------
    list of Document
        Named tuples ``(name, text, kind)``: for each step one, and for Slurm ``submit.sh``.

    Raises
    ------
    RequestError
        With all that the runner cannot do for this job.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step
    >>> from hyperplane.jobs.submitting import new_job
    >>> step = Step(name="years", kind="command", argv=("echo", "a b"), chunks=10, max_parallel=4)
    >>> documents = render("slurm", new_job(Pipeline.from_steps("flights", [step])))
    >>> [document.name for document in documents]
    ['000-years.sbatch', 'submit.sh']
    >>> "#SBATCH --array=0-9%4" in documents[0].text
    True
    """
    from hyperplane.jobs.runners.rendering import unwritable

    runner = load(name, **options)
    check([*runner.unsupported(job.pipeline), *unwritable(job)])
    return runner.render(job)
