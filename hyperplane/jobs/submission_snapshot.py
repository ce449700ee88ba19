"""What belongs to a job of its submission, kept in the job's folder for whoever carries it on.

The supervisor has the configuration of whoever started it, and its environment after a kill. Both
may be another one than that of the submission, so what a job needs of them is kept with the job:
its settings, the sizes of its pools, and those variables that hold no secrets.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane import config
from hyperplane.engines.running_system import running_system
from hyperplane.errors import JobError, UnknownPool
from hyperplane.jobs.definition import credentials
from hyperplane.jobs.definition.models import Resources, Step
from hyperplane.jobs.environment import without_other_secrets

if TYPE_CHECKING:
    from hyperplane.jobs.states import Job
    from hyperplane.spec.settings import JobSettings

_FILE_NAME = "submission.json"
#: The settings that belong to a job; the others are those of the machine.
JOB_SETTINGS = ("retry_wait", "retry_wait_most", "grace", "chunks_at_once", "secrets", "notify",
            "log_limit")  # fmt: skip
#: Variables that say which programs and packages there are, and how they count and spell. Nobody
#: has secrets there, and a step that begins without them is another step.
_PLAIN_VARIABLES = re.compile(
    r"PATH|PYTHONPATH|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|NODE_PATH|JUPYTER_PATH|JUPYTER_DATA_DIR|"
    r"VIRTUAL_ENV|CONDA_PREFIX|CONDA_DEFAULT_ENV|JAVA_HOME|SPARK_HOME|HADOOP_HOME|CUDA_HOME|"
    r"DASK_CONFIG|SLURM_CONF|SBATCH_[A-Z_]+|TMPDIR|TZ|LANG|LANGUAGE|LC_[A-Z]+|CUDA_VISIBLE_DEVICES|[A-Z]+_NUM_THREADS"
)


@dataclass(frozen=True)
class SubmissionSnapshot:
    """What is kept of a submission.

    Parameters
    ----------
    settings : JobSettings
        Those of the job, and beside them those of this process.
    pools : mapping of str to Resources
        What the pools that steps name have, as the submission knew them.
    environment : mapping of str to str, or None
        The plain variables; None when nothing was kept.
    runner : mapping
        The options of the runner.
    notes : tuple of str
        Warnings of the submission for the job's log.
    """

    settings: JobSettings
    pools: Mapping[str, Resources] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    runner: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_pool_resources(self, step: Step) -> Step:
        """A step with the cores, memory and GPUs of its pool in place of the pool's name."""
        pool = self.pools.get(step.resources.pool or "")
        if pool is None:
            return step
        gpus = step.resources.gpus or pool.gpus
        return step.model_copy(update={"resources": pool.model_copy(update={"gpus": gpus})})

    def apply_to(self, environment: Mapping[str, str]) -> dict[str, str]:
        """An environment with the plain variables of the submission in place of its own.

        Examples
        --------
        >>> kept = Kept(config.jobs(), environment={"PATH": "/opt/bin:/bin"})
        >>> kept.apply_to({"PATH": "/bin", "LANG": "C", "USER": "ada"})
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
) -> None:
    """Keep what a job needs of this configuration and of an environment.

    Parameters
    ----------
    job : Job
        The job.
    environment : mapping of str to str
        What its steps run in.
    runner : mapping
        The options of its runner, as :func:`hyperplane.jobs.runners.settle` gives them.
    notes : sequence of str
        Warnings for the log of its first step.

    Raises
    ------
    JobError
        When nothing can be written into the job's folder.
    """
    settings = config.jobs().model_dump(mode="json")
    document = {
        "settings": {name: settings[name] for name in JOB_SETTINGS},
        "pools": _pool_resources(job),
        "environment": _plain_variables(job, environment),
        "runner": dict(runner),
        "system": running_system(),
        "notes": list(notes),
    }
    _write(job, document)


def read_running_system(job: Job) -> str:
    """The running system whose supervisor carries a job on; empty where that is not kept.

    It is a boot and a process namespace, as
    :func:`hyperplane.engines.running_system.running_system` has it:
    two containers may have one host name, and with it one name of a machine.
    """
    try:
        return str(json.loads(Path(job.folder, _FILE_NAME).read_text())["system"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def adopt_job(job: Job) -> None:
    """Make a job one of this running system; the job is claimed by this process."""
    try:
        document = json.loads(Path(job.folder, _FILE_NAME).read_text())
        if document.get("system") != running_system():
            _write(job, {**document, "system": running_system()})
    except JobError as error:  # a full disk, for which whoever claims jobs waits
        raise error.__cause__ or error from None
    except (OSError, ValueError, AttributeError):
        return  # nothing is kept of it


def _write(job: Job, document: Mapping[str, Any]) -> None:
    file = job.place / _FILE_NAME
    draft = file.with_suffix(".draft")
    try:
        job.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as opened:
            json.dump(document, opened)
        draft.replace(file)
    except OSError as error:
        raise folder_error(job, error) from error


def folder_error(job: Job, error: OSError) -> JobError:
    """The error of a job whose folder cannot be made or written."""
    return JobError(job.id, f"its folder {job.place} cannot be used ({error.strerror})")


def load_snapshot(job: Job) -> SubmissionSnapshot:
    """What is kept of a job; where that is nothing, all is as this process has it."""
    settings = config.jobs()
    try:
        document = json.loads(Path(job.folder, _FILE_NAME).read_text())
        settled = document["settings"]
        # One that was submitted with an earlier version has fewer.
        known = {name: settled[name] for name in JOB_SETTINGS if name in settled}
        return SubmissionSnapshot(
            type(settings)(**{**settings.model_dump(), **known}),
            {name: Resources(**sizes) for name, sizes in document["pools"].items()},
            {str(name): str(text) for name, text in document["environment"].items()},
            document.get("runner", {}),
            tuple(map(str, document.get("notes", ()))),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return SubmissionSnapshot(settings)


def _pool_resources(job: Job) -> dict[str, dict[str, float]]:
    """What the pools that steps name have; without those that are gone since the submission."""
    found = {}
    for name in {step.resources.pool for step in job.pipeline.steps if step.resources.pool}:
        with suppress(UnknownPool):
            pool = config.get_pool(name)
            cores, ram_gb = pool.allocatable_cores, pool.allocatable_ram_gb
            found[name] = {"cores": cores, "ram_gb": ram_gb, "gpus": pool.gpus}
    return found


def _plain_variables(job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are no secret by their name, nor by their form, nor to any step."""
    nobody = Step(name="nobody", kind="command", argv=("true",))
    shown = without_other_secrets(nobody, job.pipeline.steps, environment)
    return {
        name: text
        for name, text in shown.items()
        if _PLAIN_VARIABLES.fullmatch(name) and not credentials.detect_credential(text)
    }
