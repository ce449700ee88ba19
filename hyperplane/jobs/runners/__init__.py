"""Registries of runners, which run the steps of jobs, and of renderers for schedulers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.registry import Registry
from hyperplane.jobs.definition.message_formatting import format_value, suggest_names

if TYPE_CHECKING:
    from hyperplane.jobs.runners.base import Document, Renderer, Runner
    from hyperplane.jobs.store.job_records import Job

#: Runners by name; other packages register theirs in the entry-point group.
RUNNERS: Registry[Runner] = Registry(
    argument="runner",
    group="hyperplane.runners",
    built_in={
        "local": "hyperplane.jobs.runners.local:LocalRunner",
        "slurm": "hyperplane.jobs.runners.slurm.runner:SlurmRunner",
        "kubernetes": "hyperplane.jobs.runners.kubernetes.runner:KubernetesRunner",
    },
)
#: Renderers by name; their output runs a job without this package.
RENDERERS: Registry[Renderer] = Registry(
    argument="runner",
    group="hyperplane.exporters",
    built_in={
        "slurm": "hyperplane.jobs.exporters.slurm:SlurmRenderer",
        "kubernetes": "hyperplane.jobs.exporters.kubernetes:KubernetesRenderer",
    },
)


def create_runner(name: str, environment: Mapping[str, str], options: Mapping[str, Any]) -> Runner:
    """Create the runner of a name.

    Parameters
    ----------
    name : str
        One of ``RUNNERS``.
    environment : mapping of str to str
        Environment of the submission, in which a scheduler's commands are found.
    options : mapping
        Its options, as :func:`resolve_options` returns them.

    Raises
    ------
    RequestError
        If there is no such runner.
    """
    return RUNNERS.load(name)(environment, options)


def resolve_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the runner options of a submission from the configuration.

    Parameters
    ----------
    name : str
        One of ``RUNNERS``.
    options : mapping
        Those of the runner. For Kubernetes, settings of the engine of that name, and ``root``; the
        other built-in runners have none.

    Returns
    -------
    dict
        JSON-serializable options.

    Raises
    ------
    RequestError
        If there is no such runner, or with every fault of the options.
    """
    if not isinstance(options, Mapping) or not all(isinstance(one, str) for one in options):
        allowed = "a mapping of names to values"
        raise RequestError([Fault("runner_options", format_value(options), allowed)])
    return RUNNERS.load(name).resolve_options(options)


def has_shared_files(name: str) -> bool:
    """Whether the steps of a runner can access the files and kernels of this machine."""
    from hyperplane.jobs.runners.base import SharedFilesystemMixin

    return issubclass(RUNNERS.load(name), SharedFilesystemMixin)


def create_renderer(name: str, **options: Any) -> Renderer:
    """Create a renderer, which describes a job in the language of a scheduler.

    Parameters
    ----------
    name : str
        One of ``RENDERERS``.
    **options
        Its options: ``python`` for Slurm, ``image`` and ``root`` for Kubernetes.

    Raises
    ------
    RequestError
        If there is no such renderer, or it has no such options.
    """
    kind: Any = RENDERERS.load(name)
    known = [field.name for field in dataclasses.fields(kind)]
    check(
        Fault(
            one,
            "",
            f"unknown option of {name}; expected {', '.join(known)}",
            suggest_names(one, known),
        )
        for one in options
        if one not in known
    )
    renderer: Renderer = kind(**options)
    return renderer


def render(name: str, job: Job, **options: Any) -> list[Document]:
    """Render a job for a scheduler; nothing is submitted or written.

    Parameters
    ----------
    name : str
        One of ``RENDERERS``.
    job : Job
        The job.
    **options
        As for :func:`create_renderer`.

    Returns
    -------
    list of Document
        Named tuples ``(name, text, kind)``: one for each step, and for Slurm ``submit.sh``.

    Raises
    ------
    RequestError
        With everything that the scheduler does not support.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step
    >>> from hyperplane.jobs.job_control import new_job
    >>> step = Step(name="years", kind="command", argv=("echo", "a b"), chunks=10, max_parallel=4)
    >>> documents = render("slurm", new_job(Pipeline.from_steps("flights", [step])))
    >>> [document.name for document in documents]
    ['000-years.sbatch', 'submit.sh']
    >>> "#SBATCH --array=0-9%4" in documents[0].text
    True
    """
    from hyperplane.jobs.exporters.rendering import encoding_faults

    renderer = create_renderer(name, **options)
    check([*renderer.find_unsupported(job.pipeline), *encoding_faults(job)])
    return renderer.render(job)
