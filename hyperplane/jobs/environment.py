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
    from hyperplane.jobs.states import Job, WorkUnit

PARAMETER_PREFIX = "HYPERPLANE_JOB_PARAMETER_"
SECRET_PREFIX = "HYPERPLANE_CUSTOM_SECRET_KEY_"  # noqa: S105 - a name, and no secret
#: Where a notebook notes the cell that runs.
PROGRESS = "HYPERPLANE_JOB_PROGRESS"
#: Parameters as JSON, for the cell of a notebook.
PARAMETERS = "HYPERPLANE_JOB_PARAMETERS"
#: The kernel that a step chooses for its notebook.
KERNEL = "HYPERPLANE_JOB_KERNEL"
#: Arguments of ``initialize_cluster``, as JSON.
CLUSTER = "HYPERPLANE_CLUSTER"

#: Bytes: Linux takes no variable of 128 KiB.
_MAX_BYTES = 120_000

#: Variables that decide which code runs, for whom and with whose rights: no parameter sets them.
_PROTECTED = re.compile(
    r"PATH|HOME|SHELL|USER|LOGNAME|USERNAME|PWD|OLDPWD|IFS|ENV|ENV_?FILE|TMPDIR|TMP|TEMP|LANG|"
    r"LANGUAGE|TZ|TZDIR|PS[0-9]|CDPATH|SHELLOPTS|PROMPT_COMMAND|HOSTNAME|DISPLAY|MAIL|EDITOR|PAGER|"
    r"TERM|TERMCAP|TERMINFO|TERMINFO_DIRS|VIRTUAL_ENV|CLASSPATH|KUBECONFIG|NETRC|SSLKEYLOGFILE|"
    r"GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|RES_OPTIONS|HOSTALIASES|LOCALDOMAIN|_JAVA_OPTIONS|"
    r"NODE_(OPTIONS|PATH|ENV|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)|RUBY(OPT|LIB|SHELL)|"
    r"PERL(LIB|5[A-Z0-9_]*|_[A-Z0-9_]*)|(PYTHON|IPYTHON|BASH)[A-Z0-9_]*|"
    r"(LC|LD|DYLD|NPM|PIP|UV|CONDA|MAMBA|RUBY|JAVA|JDK|SPARK|HADOOP|RAY|GIT|SSH|SSL|OPENSSL|GPG|"
    r"CURL|REQUESTS|DASK|HYPERPLANE|JUPYTER|XDG|DBUS|SUDO|SYSTEMD|MALLOC|AWS|GOOGLE|GCLOUD|CLOUDSDK|"
    r"AZURE|SLURM|SBATCH|KUBERNETES|DOCKER|OMP|MKL|CUDA)_[A-Z0-9_]*|"
    r".*_PROXY|_"
)


def variable_name(name: str) -> str:
    """The name of a variable: upper case, and ``_`` for all that is no letter or digit."""
    return re.sub("[^A-Z0-9]", "_", name.upper())


def is_protected(name: str) -> bool:
    """Whether a variable is one that no parameter may set."""
    return bool(_PROTECTED.fullmatch(name)) or name[:1].isdigit()


def parameter_faults(parameters: Mapping[Any, Any]) -> list[Fault]:
    """What keeps parameters from being variables."""
    faults: list[Fault] = []
    seen: dict[str, str] = {}
    sizes: list[int] = []
    for name, value in parameters.items():
        where = f"parameters[{ascii(name)[:60]}]"
        if not isinstance(name, str) or not name.strip() or not _is_utf8(name):
            faults.append(Fault(where, ascii(name)[:80], "a name that is text"))
            continue
        variable = variable_name(name)
        if variable in seen:
            allowed = f"names that differ as variables: {seen[variable]!r} is {variable}, too"
            faults.append(Fault(where, repr(name), allowed))
        seen[variable] = name
        try:
            text = parameters_as_text({name: value})[name]
        except (TypeError, ValueError, RecursionError):
            allowed = "text, a number, true or false, or what JSON can hold"
            faults.append(Fault(where, type(value).__name__, allowed))
            continue
        if value is None:
            faults.append(Fault(where, "None", "a value", "leave it out, or give ''"))
        elif "\0" in text:
            faults.append(Fault(where, "text with a zero byte", "text without"))
        elif not _is_utf8(text):
            faults.append(Fault(where, "text with a lone surrogate", "text that UTF-8 can hold"))
        else:
            sizes.append(len(_as_json({name: text}).encode()))
            faults += _size_faults(where, sizes[-1])
    if sizes and max(sizes) <= _MAX_BYTES:
        faults += _size_faults("parameters", sum(sizes))
    return faults


def _size_faults(where: str, size: int) -> list[Fault]:
    if size <= _MAX_BYTES:
        return []
    allowed = f"at most {_MAX_BYTES} bytes of JSON: a variable of the environment holds no more"
    return [Fault(where, f"{size} bytes", allowed, "write a file and give its path")]


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def parameters_as_text(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as texts, as the documented interface sends them."""
    return {
        name: value if isinstance(value, str) else _as_json(value)
        for name, value in parameters.items()
    }


def parameter_variables(parameters: Mapping[str, str]) -> dict[str, str]:
    """Parameters as variables: each with the prefix, and by itself where that is no harm."""
    found: dict[str, str] = {}
    for name, value in parameters.items():
        variable = variable_name(name)
        found[PARAMETER_PREFIX + variable] = value
        if not is_protected(variable):
            found[variable] = value
    return found


def step_variables(job: Job, step: Step, unit: WorkUnit, pieces: int) -> dict[str, str]:
    """What a step finds in its environment beyond that of whoever submitted the job."""
    parameters = dict(job.parameters)
    found = {
        "HYPERPLANE_JOB_ID": job.id,
        "HYPERPLANE_JOB_RUN_ID": job.run_id,
        "HYPERPLANE_JOB_NAME": job.name,
        "HYPERPLANE_JOB_STEP": step.name,
        "HYPERPLANE_JOB_FOLDER": job.folder,
        # Lines of the log come as they are written.
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
    if step.kernel is not None:
        found[KERNEL] = step.kernel
    found |= parameter_variables(parameters)
    found[PARAMETERS] = _as_json(parameters)
    return {**found, **step.env}


def cluster_variable(step: Step, times: int) -> dict[str, str]:
    """The variable with the step's cluster, larger after it ran out of memory."""
    if step.cluster is None:
        return {}
    cluster = dict(step.cluster)
    factor = (step.more_memory or 1.0) ** times
    if factor > 1 and "ram_gb_per_proc" in cluster:
        cluster["ram_gb_per_proc"] = float(str(cluster["ram_gb_per_proc"])) * factor
    return {CLUSTER: json.dumps(cluster)}


def find_secrets(
    names: Iterable[str], environment: Mapping[str, str], folder: str
) -> tuple[dict[str, str], list[str]]:
    """The values of secrets, from the environment or from files, and the names without one."""
    found: dict[str, str] = {}
    missing: list[str] = []
    for name in names:
        value = (
            environment.get(name)
            or environment.get(variable_name(name))
            or _read_secret_file(folder, name)
        )
        if value is None:
            missing.append(name)
        else:
            found[name] = value
    return found, missing


def secret_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Secrets as the variables that steps know."""
    plain = {variable_name(name): value for name, value in values.items()}
    return {
        **{SECRET_PREFIX + name: value for name, value in plain.items()},
        **{name: value for name, value in plain.items() if not is_protected(name)},
        **{name: value for name, value in values.items() if name.isidentifier()},
    }


def without_other_secrets(
    step: Step, steps: Iterable[Step], environment: Mapping[str, str]
) -> dict[str, str]:
    """An environment without the secrets of other steps.

    Parameters
    ----------
    step : Step
        Who shall see it.
    steps : iterable of Step
        All steps of the job.
    environment : mapping of str to str
        That of whoever submitted the job.

    Returns
    -------
    dict
        All of it but the variables of secrets that ``step`` does not name, in any spelling.

    Examples
    --------
    >>> from hyperplane.jobs import Step
    >>> one = Step(name="one", kind="command", argv=("true",), secrets=("db/password",))
    >>> two = Step(name="two", kind="command", argv=("true",))
    >>> hidden_from(two, [one, two], {"DB_PASSWORD": "...", "PATH": "/bin"})
    {'PATH': '/bin'}
    """
    of_all = {
        spelled for other in steps for name in other.secrets for spelled in _secret_spellings(name)
    }
    hidden = of_all - {spelled for name in step.secrets for spelled in _secret_spellings(name)}
    return {name: value for name, value in environment.items() if name not in hidden}


def _secret_spellings(name: str) -> set[str]:
    """The variables in which a secret may be."""
    return {name, variable_name(name), SECRET_PREFIX + variable_name(name)}


def _read_secret_file(folder: str, name: str) -> str | None:
    try:
        return Path(folder, name).read_text().rstrip("\n")
    except (OSError, ValueError):
        return None
