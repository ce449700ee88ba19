"""Registry of the runners, which run the steps of jobs and are imported on first use.

CONTRIBUTING.md, *Add a platform*, lists the other files of a new runner.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.registry import Registry
from hyperplane.jobs.definition.message_formatting import format_value

if TYPE_CHECKING:
    from hyperplane.jobs.runners.base import Runner
    from hyperplane.jobs.store.job_records import Job

#: Runners by name; other packages register theirs in the entry-point group.
RUNNERS: Registry[Runner] = Registry(
    argument="runner",
    group="hyperplane.runners",
    built_in={
        "local": "hyperplane.jobs.runners.local:LocalRunner",
        "slurm": "hyperplane.jobs.runners.slurm.runner:SlurmRunner",
        "kubernetes": "hyperplane.jobs.runners.kubernetes.runner:KubernetesRunner",
        "aws-batch": "hyperplane.jobs.runners.aws_batch.runner:AwsBatchRunner",
        "vertex": "hyperplane.jobs.runners.vertex.runner:VertexRunner",
        "cloud-run": "hyperplane.jobs.runners.cloud_run.runner:CloudRunRunner",
        "glue": "hyperplane.jobs.runners.glue.runner:GlueRunner",
        "emr": "hyperplane.jobs.runners.emr.runner:EmrRunner",
        "emr-serverless": "hyperplane.jobs.runners.emr_serverless.runner:EmrServerlessRunner",
    },
)


def create_runner(name: str, environment: Mapping[str, str], options: Mapping[str, Any]) -> Runner:
    """Create a runner; raise a RequestError with similar names if there is none of that name.

    ``environment`` is that of the submission, in which a scheduler's commands are found.
    ``options`` are those that :func:`resolve_options` returns.
    """
    return RUNNERS.load(name)(environment, options)


def resolve_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the runner options of a submission; the result is JSON-serializable.

    Options of Kubernetes are settings of the engine of that name, and ``root``; those of AWS Batch
    are settings of ``hyperplane.runners.aws_batch``, those of Vertex AI of
    ``hyperplane.runners.vertex``, those of Cloud Run of ``hyperplane.runners.cloud_run``, those of
    AWS Glue of ``hyperplane.runners.glue``, those of Amazon EMR of ``hyperplane.runners.emr``, and
    those of EMR Serverless of ``hyperplane.runners.emr_serverless``. The other built-in runners
    have none. Raises RequestError if there is no such runner, or with every fault of the options.
    """
    if not isinstance(options, Mapping) or not all(isinstance(option, str) for option in options):
        allowed = "a mapping of names to values"
        raise RequestError([Fault("runner_options", format_value(options), allowed)])
    return RUNNERS.load(name).resolve_options(options)


def describe_cost(job: Job, options: Mapping[str, Any]) -> list[str]:
    """Return a line with the cost of each step, for runners of services that are paid for.

    ``options`` are those that :func:`resolve_options` returns. Nothing is submitted.
    """
    from hyperplane.jobs.pipeline_sizes import with_sizes
    from hyperplane.jobs.runners.base import PricedRunner

    runner = create_runner(job.runner, os.environ, options)
    if not isinstance(runner, PricedRunner):
        return []
    return runner.describe_cost(with_sizes(job))


def describe_quota(job: Job, options: Mapping[str, Any]) -> list[str]:
    """Return lines with the quotas of the account, for runners of services that have some.

    ``options`` are those that :func:`resolve_options` returns. Nothing is submitted.
    """
    from hyperplane.jobs.runners.base import QuotaRunner

    runner = create_runner(job.runner, os.environ, options)
    return runner.describe_quota() if isinstance(runner, QuotaRunner) else []


def find_budget_faults(job: Job, options: Mapping[str, Any]) -> list[Fault]:
    """Return the faults of a job that may cost more than the budget in the runner's options.

    ``options`` are those that :func:`resolve_options` returns. Nothing is submitted.
    """
    from hyperplane.jobs.pipeline_sizes import with_sizes
    from hyperplane.jobs.runners.base import BudgetRunner

    runner = create_runner(job.runner, os.environ, options)
    return runner.find_budget_faults(with_sizes(job)) if isinstance(runner, BudgetRunner) else []


def has_shared_files(name: str) -> bool:
    """Whether the steps of a runner can access the files and kernels of this machine."""
    from hyperplane.jobs.runners.base import SharedFilesystemMixin

    return issubclass(RUNNERS.load(name), SharedFilesystemMixin)
