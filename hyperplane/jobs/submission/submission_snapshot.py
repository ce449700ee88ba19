"""Snapshot of the submitter's settings, stored in the job's folder.

The supervisor has the configuration of the process that started it, and after a kill another
environment. Therefore the settings of a job, the sizes of its pools and the environment variables
that hold no secrets are stored with the job.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane import config
from hyperplane.core.errors import JobError, UnknownPool
from hyperplane.jobs.definition import credential_detection
from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.execution.automatic_pool import uses_auto
from hyperplane.jobs.execution.step_environment import without_other_secrets
from hyperplane.platforms.local.process_identity import running_system

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_records import Job
    from hyperplane.spec.settings import JobSettings

_FILE_NAME = "submission.json"
#: Longest text of a submission for its notifications, in characters.
LONGEST_MESSAGE = 1_000
#: Settings that are stored with a job; the others are settings of the machine.
JOB_SETTINGS = ("retry_wait", "retry_wait_most", "grace", "chunks_at_once", "secrets", "notify",
            "notify_success", "notify_late", "late_after", "log_limit", "default_pool")  # fmt: skip
#: Variables that select programs, packages, locale and thread counts. They hold no secrets, and
#: without them a step would behave differently.
_PLAIN_VARIABLES = re.compile(
    r"PATH|PYTHONPATH|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|NODE_PATH|JUPYTER_PATH|JUPYTER_DATA_DIR|"
    r"VIRTUAL_ENV|CONDA_PREFIX|CONDA_DEFAULT_ENV|JAVA_HOME|SPARK_HOME|HADOOP_HOME|CUDA_HOME|"
    r"DASK_CONFIG|SLURM_CONF|SBATCH_[A-Z_]+|AWS_(DEFAULT_)?REGION|AWS_PROFILE|"
    r"AWS_ENDPOINT_URL[A-Z_]*|AWS_(CONFIG|SHARED_CREDENTIALS|WEB_IDENTITY_TOKEN)_FILE|"
    r"AWS_CA_BUNDLE|AWS_ROLE_(ARN|SESSION_NAME)|GOOGLE_(APPLICATION_CREDENTIALS|CLOUD_PROJECT)|"
    r"CLOUDSDK_CONFIG|CLOUDSDK_API_ENDPOINT_OVERRIDES_[A-Z]+|NO_GCE_CHECK|TMPDIR|TZ|LANG|LANGUAGE|LC_[A-Z]+|"
    r"CUDA_VISIBLE_DEVICES|[A-Z]+_NUM_THREADS"
)


@dataclass(frozen=True)
class NoticeRequest:
    """What a submission says of its notifications.

    Parameters
    ----------
    targets : sequence of str, optional
        Where to send a message about its failure, in place of the setting ``notify``; if empty, no
        message is sent at all.
    message : str
        Text that all messages contain.
    """

    targets: Sequence[str] | None = None
    message: str = ""


@dataclass(frozen=True)
class SubmissionSnapshot:
    """Settings and environment of a submission.

    Parameters
    ----------
    settings : JobSettings
        Settings of the job, completed with those of this process.
    pools : mapping of str to Resources
        Sizes at submission of the pools that steps name, without unknown pools.
    environment : mapping of str to str, or None
        Variables without secrets; None if nothing was stored.
    runner : mapping
        Options of the runner.
    notes : tuple of str
        Warnings for the log of the first step.
    notify : NoticeRequest
        What the submission says of notifications; the settings have its targets, too.
    """

    settings: JobSettings
    pools: Mapping[str, Resources] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    runner: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    notify: NoticeRequest = NoticeRequest()

    def with_pool_resources(self, step: Step) -> Step:
        """Return a step with the resources of its pool in place of the pool's name."""
        pool = self.pools.get(step.resources.pool or "")
        if pool is None:
            return step
        gpus = step.resources.gpus or pool.gpus
        return step.model_copy(update={"resources": pool.model_copy(update={"gpus": gpus})})

    def apply_to(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Replace the plain variables of an environment with those of the submission.

        Examples
        --------
        >>> snapshot = SubmissionSnapshot(config.jobs(), environment={"PATH": "/opt/bin:/bin"})
        >>> snapshot.apply_to({"PATH": "/bin", "LANG": "C", "USER": "ada"})
        {'USER': 'ada', 'PATH': '/opt/bin:/bin'}
        """
        if self.environment is None:
            return dict(environment)
        others = {
            name: text for name, text in environment.items() if not _PLAIN_VARIABLES.fullmatch(name)
        }
        return {**others, **self.environment}


def save_snapshot(
    job: Job,
    environment: Mapping[str, str],
    runner: Mapping[str, Any],
    notes: Sequence[str] = (),
    notify: NoticeRequest | None = None,
) -> None:
    """Store the settings, pools and environment of a job.

    Parameters
    ----------
    job : Job
        The job.
    environment : mapping of str to str
        Environment of the job's steps.
    runner : mapping
        Options of its runner, from :func:`hyperplane.jobs.runners.registry.resolve_options`.
    notes : sequence of str
        Warnings for the log of the first step.
    notify : NoticeRequest, optional
        What the submission says of notifications.

    Raises
    ------
    JobError
        If the job's folder cannot be written.
    """
    settings = config.jobs().model_dump(mode="json")
    notices = notify or NoticeRequest()
    targets = None if notices.targets is None else list(notices.targets)
    if targets is not None:
        settings["notify"] = targets
    if targets == []:
        settings |= {"notify_success": [], "notify_late": []}
    document = {
        "settings": {name: settings[name] for name in JOB_SETTINGS},
        "pools": _pool_resources(job),
        "environment": _plain_variables(job, environment),
        "runner": dict(runner),
        "system": running_system(),
        "notes": list(notes),
        "notify": targets,
        "message": notices.message,
    }
    _write(job, document)


def remove_snapshot(job: Job) -> None:
    """Remove the snapshot of a job, and its folder if that has no other files."""
    with suppress(OSError):
        Path(job.folder, _FILE_NAME).unlink(missing_ok=True)
        job.folder_path.rmdir()


def read_running_system(job: Job) -> str:
    """Return the running system of the supervisor that runs a job; empty if unknown.

    It identifies a boot and a process namespace, as ``process_identity.running_system`` returns
    it: two containers may share a host name, which is part of a machine's name.
    """
    try:
        return str(json.loads(Path(job.folder, _FILE_NAME).read_text())["system"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def adopt_job(job: Job) -> None:
    """Assign a job, claimed by this process, to this running system."""
    try:
        document = json.loads(Path(job.folder, _FILE_NAME).read_text())
        if document.get("system") != running_system():
            _write(job, {**document, "system": running_system()})
    except JobError as error:  # the caller waits while the disk is full
        raise error.__cause__ or error from None
    except (OSError, ValueError, AttributeError):
        return  # there is no snapshot


def _write(job: Job, document: Mapping[str, Any]) -> None:
    file = job.folder_path / _FILE_NAME
    draft = file.with_suffix(".draft")
    try:
        job.folder_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as opened:
            json.dump(document, opened)
        draft.replace(file)
    except OSError as error:
        raise folder_error(job, error) from error


def folder_error(job: Job, error: OSError) -> JobError:
    """Return the error of a job whose folder cannot be created or written."""
    problem = f"its folder {job.folder_path} cannot be used ({error.strerror})"
    return JobError(job.id, f"{problem}; check its owner and the free space on its disk")


def load_snapshot(job: Job) -> SubmissionSnapshot:
    """Load the snapshot of a job; without one, use the settings of this process."""
    settings = config.jobs()
    try:
        document = json.loads(Path(job.folder, _FILE_NAME).read_text())
        stored = document["settings"]
        # Jobs submitted with an earlier version have fewer settings.
        known = {name: stored[name] for name in JOB_SETTINGS if name in stored}
        return SubmissionSnapshot(
            type(settings)(**{**settings.model_dump(), **known}),
            {name: Resources(**sizes) for name, sizes in document["pools"].items()},
            {str(name): str(text) for name, text in document["environment"].items()},
            document.get("runner", {}),
            tuple(map(str, document.get("notes", ()))),
            _read_notices(document),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return SubmissionSnapshot(settings)


def _read_notices(document: Mapping[str, Any]) -> NoticeRequest:
    targets = document.get("notify")
    targets = None if targets is None else tuple(map(str, targets))
    return NoticeRequest(targets, str(document.get("message", "")))


def _pool_resources(job: Job) -> dict[str, dict[str, Any]]:
    """Return the sizes of the pools that steps name; those of all pools if one is chosen."""
    steps = job.pipeline.steps
    names = {step.resources.pool for step in steps if step.resources.pool}
    sizes = measure_pools(None if any(map(uses_auto, steps)) else names)
    return {
        name: pool.model_dump(include={"cores", "ram_gb", "gpus"}) for name, pool in sizes.items()
    }


def measure_pools(names: Iterable[str] | None) -> dict[str, Resources]:
    """Return what a step can use on a node of pools that exist; of all pools without names."""
    sizes = {}
    for name in config.pools() if names is None else names:
        with suppress(UnknownPool):
            pool = config.get_pool(name)
            cores, ram_gb = pool.allocatable_cores, pool.allocatable_ram_gb
            sizes[name] = Resources(cores=cores, ram_gb=ram_gb, gpus=pool.gpus)
    return sizes


def _plain_variables(job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that neither by name nor by content hold a secret."""
    step_without_secrets = Step(name="none", kind="command", argv=("true",))
    visible = without_other_secrets(step_without_secrets, job.pipeline.steps, environment)
    return {
        name: text
        for name, text in visible.items()
        if _PLAIN_VARIABLES.fullmatch(name) and not credential_detection.detect_credential(text)
    }
