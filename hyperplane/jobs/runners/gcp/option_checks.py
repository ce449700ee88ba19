"""Faults of options that every service of Google Cloud refuses."""

from __future__ import annotations

from typing import NamedTuple

from hyperplane.core.errors import Fault
from hyperplane.jobs.runners.gcp.bucket_task import ATTEMPT_LABEL, JOB_LABEL
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.spec.settings import GcpJobSettings

_ADVICE = "set it in the configuration, or with the option {}="
#: Settings without which nothing can be submitted, and what they are.
_REQUIRED = {
    "region": "the name of a region, such as europe-west4",
    "image": "the name of an image, such as region-docker.pkg.dev/project/repository/name:tag",
    "staging": "a folder of a bucket, such as gs://bucket/folder",
}
#: Maximum labels of a job besides those of hyperplane.
_MAX_LABELS = 62


class ReservedVariables(NamedTuple):
    """Beginnings and names of variables that only a service sets, and how many others it takes."""

    beginnings: tuple[str, ...]
    names: tuple[str, ...]
    most: int

    def has(self, name: str) -> bool:
        """Return whether a variable is reserved."""
        return name.startswith(self.beginnings) or name in self.names

    def describe_allowed(self) -> str:
        """Return which names are allowed."""
        *others, last = self.names
        beginnings = " or ".join(self.beginnings)
        return f"names that do not begin with {beginnings}, nor are {', '.join(others)} or {last}"


def find_setting_faults(
    section: str, settings: GcpJobSettings, reserved: ReservedVariables
) -> list[Fault]:
    """Return a fault for each setting that is missing, and for wrong variables and labels."""
    faults = [
        Fault(f"{section}.{name}", "nothing", allowed, _ADVICE.format(name))
        for name, allowed in _REQUIRED.items()
        if getattr(settings, name) is None
    ]
    variables = parse_pairs(settings.environ)
    faults += [
        Fault(f"{section}.environ", repr(name), reserved.describe_allowed())
        for name in variables
        if reserved.has(name)
    ]
    if len(variables) > reserved.most:
        allowed = f"at most {reserved.most} variables"
        faults.append(Fault(f"{section}.environ", f"{len(variables)} variables", allowed))
    count = len(parse_pairs(settings.labels).keys() - {JOB_LABEL, ATTEMPT_LABEL})
    if count > _MAX_LABELS:
        allowed = f"at most {_MAX_LABELS} labels, besides those that hyperplane adds"
        faults.append(Fault(f"{section}.labels", f"{count} labels", allowed))
    return faults
