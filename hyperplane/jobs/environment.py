"""The variables that a step finds: its job, its parameters, its chunk and its secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane.errors import Fault

if TYPE_CHECKING:
    from hyperplane.jobs.definition.models import Step
    from hyperplane.jobs.states import Job, Unit

PREFIX = "HYPERPLANE_JOB_PARAMETER_"
SECRET_PREFIX = "HYPERPLANE_CUSTOM_SECRET_KEY_"  # noqa: S105 - a name, and no secret
#: Where a notebook notes the cell that runs.
PROGRESS = "HYPERPLANE_JOB_PROGRESS"
#: Parameters as JSON, for the cell of a notebook.
PARAMETERS = "HYPERPLANE_JOB_PARAMETERS"
#: Arguments of ``initialize_cluster``, as JSON.
CLUSTER = "HYPERPLANE_CLUSTER"

#: Variables that decide which code runs, for whom and with whose rights: no parameter sets them.
_PROTECTED = re.compile(
    r"PATH|HOME|SHELL|USER|LOGNAME|USERNAME|PWD|OLDPWD|IFS|ENV_?FILE|TMPDIR|TMP|TEMP|LANG|LANGUAGE|"
    r"TZ|PS[0-9]|CDPATH|SHELLOPTS|PROMPT_COMMAND|HOSTNAME|DISPLAY|MAIL|EDITOR|PAGER|TERM|"
    r"VIRTUAL_ENV|GLIBC_TUNABLES|CLASSPATH|KUBECONFIG|NETRC|"
    r"(LC|LD|DYLD|PYTHON|BASH|NODE|NPM|PIP|UV|CONDA|MAMBA|RUBY|PERL|PERL5|JAVA|JDK|SPARK|HADOOP|RAY|"
    r"GIT|SSH|SSL|GPG|CURL|REQUESTS|DASK|HYPERPLANE|JUPYTER|IPYTHON|XDG|DBUS|SUDO|SYSTEMD|MALLOC|"
    r"AWS|GOOGLE|GCLOUD|AZURE|SLURM|SBATCH|KUBERNETES|DOCKER|OMP|MKL|CUDA)(_?[A-Z0-9_]*)|"
    r".*_PROXY|_"
)


def cleaned(name: str) -> str:
    """The name of a variable: upper case, and ``_`` for all that is no letter or digit."""
    return re.sub("[^A-Z0-9]", "_", name.upper())


def protected(name: str) -> bool:
    """Whether a variable is one that no parameter may set."""
    return bool(_PROTECTED.fullmatch(name)) or name[:1].isdigit()


def parameter_faults(parameters: Mapping[Any, Any]) -> list[Fault]:
    """What keeps parameters from being variables."""
    faults: list[Fault] = []
    seen: dict[str, str] = {}
    for name, value in parameters.items():
        where = f"parameters[{str(name)[:60]!r}]"
        if not isinstance(name, str) or not name.strip():
            faults.append(Fault(where, repr(name)[:80], "a name that is text"))
            continue
        variable = cleaned(name)
        if variable in seen:
            allowed = f"names that differ as variables: {seen[variable]!r} is {variable}, too"
            faults.append(Fault(where, repr(name), allowed))
        seen[variable] = name
        try:
            text = as_text({name: value})[name]
        except (TypeError, ValueError):
            allowed = "text, a number, true or false, or what JSON can hold"
            faults.append(Fault(where, type(value).__name__, allowed))
            continue
        if "\0" in text:
            faults.append(Fault(where, "text with a zero byte", "text without"))
        if value is None:
            faults.append(Fault(where, "None", "a value", "leave it out, or give ''"))
    return faults


def as_text(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as texts, as the documented interface sends them."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in parameters.items()
    }


def variables(job: Job, step: Step, unit: Unit, pieces: int) -> dict[str, str]:
    """What a step finds in its environment beyond that of whoever submitted the job."""
    parameters = dict(job.parameters)
    found = {
        "HYPERPLANE_JOB_ID": job.id,
        "HYPERPLANE_JOB_RUN_ID": job.run_id,
        "HYPERPLANE_JOB_NAME": job.name,
        "HYPERPLANE_JOB_STEP": step.name,
        "HYPERPLANE_JOB_FOLDER": job.folder,
        # Text of Python is UTF-8, and lines of the log come as they are written.
        "PYTHONUNBUFFERED": "1",
    }
    if unit.chunks:
        parameters["chunk_id"] = str(unit.chunk)
        found["HYPERPLANE_SHARD_INDEX"] = str(unit.chunk)
        found["HYPERPLANE_SHARD_COUNT"] = str(unit.chunks)
        if step.foreach:
            parameters["item"] = step.foreach[unit.chunk]
    if pieces > 1:
        parameters["pieces"] = str(pieces)
    for name, value in parameters.items():
        variable = cleaned(name)
        found[PREFIX + variable] = value
        if not protected(variable):
            found[variable] = value
    found[PARAMETERS] = json.dumps(parameters, ensure_ascii=False)
    return {**found, **step.env}


def grown(step: Step, times: int) -> dict[str, str]:
    """The variable with the step's cluster, larger after it ran out of memory."""
    if step.cluster is None:
        return {}
    cluster = dict(step.cluster)
    factor = (step.more_memory or 1.0) ** times
    if factor > 1 and "ram_gb_per_proc" in cluster:
        cluster["ram_gb_per_proc"] = float(str(cluster["ram_gb_per_proc"])) * factor
    return {CLUSTER: json.dumps(cluster)}


def secrets(
    names: Iterable[str], environment: Mapping[str, str], folder: str
) -> tuple[dict[str, str], list[str]]:
    """The values of secrets, from the environment or from files, and the names without one."""
    found: dict[str, str] = {}
    missing: list[str] = []
    for name in names:
        value = environment.get(name) or environment.get(cleaned(name)) or _in_file(folder, name)
        if value is None:
            missing.append(name)
        else:
            found[name] = value
    return found, missing


def secret_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Secrets as the variables that steps know."""
    plain = {cleaned(name): value for name, value in values.items()}
    return {
        **{SECRET_PREFIX + name: value for name, value in plain.items()},
        **{name: value for name, value in plain.items() if not protected(name)},
        **{name: value for name, value in values.items() if name.isidentifier()},
    }


def _in_file(folder: str, name: str) -> str | None:
    try:
        return Path(folder, name).read_text().rstrip("\n")
    except (OSError, ValueError):
        return None
