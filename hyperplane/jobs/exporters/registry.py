"""Registry of the exporters, which write files that run a job without a supervisor.

CONTRIBUTING.md, *Add a platform*, lists the other files of a new exporter.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, check
from hyperplane.core.registry import Registry
from hyperplane.jobs.definition.message_formatting import suggest_names

if TYPE_CHECKING:
    from hyperplane.jobs.exporters.base import Document, Exporter
    from hyperplane.jobs.store.job_records import Job

#: Exporters by name, which is that of a scheduler; other packages register theirs in the
#: entry-point group.
EXPORTERS: Registry[Exporter] = Registry(
    argument="runner",
    group="hyperplane.exporters",
    built_in={
        "slurm": "hyperplane.jobs.exporters.slurm:SlurmExporter",
        "kubernetes": "hyperplane.jobs.exporters.kubernetes:KubernetesExporter",
        "aws-batch": "hyperplane.jobs.exporters.aws_batch:AwsBatchExporter",
        "vertex": "hyperplane.jobs.exporters.vertex:VertexExporter",
        "cloud-run": "hyperplane.jobs.exporters.cloud_run:CloudRunExporter",
        "glue": "hyperplane.jobs.exporters.glue:GlueExporter",
        "emr": "hyperplane.jobs.exporters.emr:EmrExporter",
        "emr-serverless": "hyperplane.jobs.exporters.emr_serverless:EmrServerlessExporter",
    },
)


def create_exporter(name: str, **options: Any) -> Exporter:
    """Create an exporter; raise a RequestError for an unknown name or unknown options.

    The options are ``python`` for Slurm, ``image`` and ``root`` for Kubernetes, and settings of
    ``hyperplane.runners.aws_batch``, ``vertex``, ``cloud_run``, ``glue``, ``emr`` and
    ``emr_serverless`` for these runners.
    """
    kind: Any = EXPORTERS.load(name)
    known = [field.name for field in dataclasses.fields(kind)]
    check(
        Fault(
            option,
            "",
            f"unknown option of {name}; expected {', '.join(known)}",
            suggest_names(option, known),
        )
        for option in options
        if option not in known
    )
    exporter: Exporter = kind(**options)
    return exporter


def render(name: str, job: Job, **options: Any) -> list[Document]:
    """Render a job for a scheduler; nothing is submitted or written.

    Parameters
    ----------
    name : str
        One of ``EXPORTERS``.
    job : Job
        The job.
    **options
        As for :func:`create_exporter`.

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
    from hyperplane.jobs.exporters.exported_step import find_encoding_faults
    from hyperplane.jobs.pipeline_sizes import with_sizes

    job = with_sizes(job)

    exporter = create_exporter(name, **options)
    check([*exporter.find_unsupported(job.pipeline), *find_encoding_faults(job)])
    return exporter.render(job)
