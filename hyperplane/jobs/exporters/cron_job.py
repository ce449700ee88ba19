"""Exporter of schedules to Kubernetes: the manifest of a CronJob."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hyperplane.core.errors import Fault, check
from hyperplane.platforms.kubernetes.batch_job import build_cron_job, build_job_pod
from hyperplane.platforms.kubernetes.manifest_yaml import dump_yaml
from hyperplane.platforms.kubernetes.objects import MANAGED_BY, escape_variables
from hyperplane.platforms.kubernetes.pods import build_container, build_unprivileged_pod

#: Seconds that a job has to end after SIGTERM before its pod is killed.
_GRACE_SECONDS = 30
#: Maximum length of a CronJob name: Kubernetes appends to it, up to 63 characters.
_MAX_NAME_LENGTH = 52


def find_faults(name: str, cron: str | None, image: str) -> list[Fault]:
    """Return the faults of a name, a cron expression and an image for a CronJob.

    ``cron`` is None if it is invalid, which is reported elsewhere.
    """
    faults = []
    if len(_resource_name(name)) > _MAX_NAME_LENGTH:
        allowed = f"at most {_MAX_NAME_LENGTH} characters for Kubernetes"
        faults.append(Fault("--name", repr(name), allowed))
    if not image.strip():
        advice = "it needs hyperplane and the files of the pipeline"
        faults.append(Fault("--image", "nothing", "an image for the job's container", advice))
    days = "" if cron is None else cron.split()[4]
    if "7" in re.sub(r"/\d+", "", days):  # a step of 7, as in */7, is valid
        allowed = "0 for Sunday in Kubernetes, which does not accept 7"
        advice = "write a range such as 5-7 as 0,5-6"
        faults.append(Fault("--cron, day of the week", repr(days), allowed, advice))
    return faults


def _resource_name(name: str) -> str:
    return re.sub("[^a-z0-9-]+", "-", name.lower()).strip("-")


def render_cron_job(
    name: str, cron: str, argv: Sequence[str], *, image: str, folder: str, overlap: bool
) -> str:
    """Render the manifest of a CronJob that runs a job in the foreground of its pod.

    Parameters
    ----------
    name : str
        Name of the schedule.
    cron : str
        Cron expression, in UTC.
    argv : sequence of str
        Program and arguments.
    image : str
        Image with the program and the files of the pipeline.
    folder : str
        Working folder; that of the image if empty.
    overlap : bool
        Whether a run may start while an earlier one is running.

    Raises
    ------
    RequestError
        If the name, the day of the week or the image is not valid in Kubernetes.

    Examples
    --------
    >>> options = {"image": "tools", "folder": "", "overlap": True}
    >>> text = render_cron_job("Tidy", "0 6 * * *", ["tidy"], **options)
    >>> text.splitlines()[3]
    '  name: tidy'
    """
    check(find_faults(name, cron, image))
    resource = _resource_name(name)
    container = build_container("job", image, command=[escape_variables(word) for word in argv])
    if folder:
        container["workingDir"] = folder
    pod = build_job_pod(container, build_unprivileged_pod(), grace=_GRACE_SECONDS)
    labels = {**MANAGED_BY, "hyperplane.dev/schedule": name}
    # One attempt per Job: `hyperplane job run` retries by itself, without repeating finished steps.
    return dump_yaml(build_cron_job(resource, labels, pod, schedule=cron, overlap=overlap))
