"""Environment variables of a step: its job, parameters, chunk and secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault

if TYPE_CHECKING:
    from hyperplane.jobs.definition.models import Step
    from hyperplane.jobs.states import Job, WorkUnit

PARAMETER_PREFIX = "HYPERPLANE_JOB_PARAMETER_"
SECRET_PREFIX = "HYPERPLANE_CUSTOM_SECRET_KEY_"  # noqa: S105 - a name, and no secret
#: File in which a notebook step records the cell that it executes.
PROGRESS = "HYPERPLANE_JOB_PROGRESS"
#: All parameters as JSON, for the parameter cell of a notebook.
PARAMETERS = "HYPERPLANE_JOB_PARAMETERS"
#: Kernel that a step selects for its notebook.
KERNEL = "HYPERPLANE_JOB_KERNEL"
#: Arguments of ``initialize_cluster``, as JSON.
CLUSTER = "HYPERPLANE_CLUSTER"

#: Maximum bytes of a variable: Linux accepts less than 128 KiB.
_MAX_BYTES = 120_000

#: Variables that decide which code runs, for which user and with which permissions; parameters
#: cannot set them.
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
    """Convert to a variable name: upper case, with ``_`` for other characters."""
    return re.sub("[^A-Z0-9]", "_", name.upper())


def is_protected(name: str) -> bool:
    """Whether parameters must not set a variable."""
    return bool(_PROTECTED.fullmatch(name)) or name[:1].isdigit()


def parameter_faults(parameters: Mapping[Any, Any]) -> list[Fault]:
    """Return why parameters cannot be environment variables."""
    faults: list[Fault] = []
    names_by_variable: dict[str, str] = {}
    sizes: list[int] = []
    for name, value in parameters.items():
        where = f"parameters[{ascii(name)[:60]}]"
        if not isinstance(name, str) or not name.strip() or not _is_utf8(name):
            faults.append(Fault(where, ascii(name)[:80], "a name that is text"))
            continue
        variable = variable_name(name)
        if variable in names_by_variable:
            other = names_by_variable[variable]
            allowed = f"names that differ as variables; {other!r} is {variable}, too"
            faults.append(Fault(where, repr(name), allowed))
        names_by_variable[variable] = name
        try:
            text = parameters_as_text({name: value})[name]
        except (TypeError, ValueError, RecursionError):
            allowed = "text, a number, true or false, or another JSON value"
            faults.append(Fault(where, type(value).__name__, allowed))
            continue
        if value is None:
            faults.append(Fault(where, "None", "a value", "omit the parameter, or pass ''"))
        elif "\0" in text:
            faults.append(Fault(where, "text with a NUL character", "text without NUL characters"))
        elif not _is_utf8(text):
            faults.append(Fault(where, "text with a lone surrogate", "text that UTF-8 can encode"))
        else:
            sizes.append(len(_as_json({name: text}).encode()))
            faults += _size_faults(where, sizes[-1])
    if sizes and max(sizes) <= _MAX_BYTES:
        faults += _size_faults("parameters", sum(sizes))
    return faults


def _size_faults(where: str, size: int) -> list[Fault]:
    if size <= _MAX_BYTES:
        return []
    allowed = f"at most {_MAX_BYTES} bytes of JSON, the limit of an environment variable"
    return [Fault(where, f"{size} bytes", allowed, "write the value to a file and pass its path")]


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def parameters_as_text(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Convert parameters to text, as the documented interface sends them."""
    return {
        name: value if isinstance(value, str) else _as_json(value)
        for name, value in parameters.items()
    }


def parameter_variables(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return parameters as variables: with the prefix, and bare unless protected."""
    variables: dict[str, str] = {}
    for name, value in parameters.items():
        variable = variable_name(name)
        variables[PARAMETER_PREFIX + variable] = value
        if not is_protected(variable):
            variables[variable] = value
    return variables


def step_variables(job: Job, step: Step, unit: WorkUnit, pieces: int) -> dict[str, str]:
    """Return the variables of a step beyond the environment of the submission."""
    parameters = dict(job.parameters)
    variables = {
        "HYPERPLANE_JOB_ID": job.id,
        "HYPERPLANE_JOB_RUN_ID": job.run_id,
        "HYPERPLANE_JOB_NAME": job.name,
        "HYPERPLANE_JOB_STEP": step.name,
        "HYPERPLANE_JOB_FOLDER": job.folder,
        # Unbuffered, so that the log is up to date.
        "PYTHONUNBUFFERED": "1",
    }
    if unit.chunks:
        parameters["chunk_id"] = str(unit.chunk)
        variables["HYPERPLANE_SHARD_INDEX"] = str(unit.chunk)
        variables["HYPERPLANE_SHARD_COUNT"] = str(unit.chunks)
        if step.foreach:
            parameters["item"] = step.foreach[unit.chunk]
    if pieces > 1:
        parameters["pieces"] = str(pieces)
    if step.kernel is not None:
        variables[KERNEL] = step.kernel
    variables |= parameter_variables(parameters)
    variables[PARAMETERS] = _as_json(parameters)
    return {**variables, **step.env}


def cluster_variable(step: Step, times: int) -> dict[str, str]:
    """Return the variable with the step's cluster, with more memory after running out of it."""
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
    """Return the values of secrets from the environment or files, and the missing names."""
    values: dict[str, str] = {}
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
            values[name] = value
    return values, missing


def secret_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in which steps find secrets."""
    plain = {variable_name(name): value for name, value in values.items()}
    return {
        **{SECRET_PREFIX + name: value for name, value in plain.items()},
        **{name: value for name, value in plain.items() if not is_protected(name)},
        **{name: value for name, value in values.items() if name.isidentifier()},
    }


def without_other_secrets(
    step: Step, steps: Iterable[Step], environment: Mapping[str, str]
) -> dict[str, str]:
    """Remove the secrets of other steps from an environment.

    Returns all variables except those of secrets that ``step`` does not name, in any spelling.

    Examples
    --------
    >>> from hyperplane.jobs import Step
    >>> one = Step(name="one", kind="command", argv=("true",), secrets=("db/password",))
    >>> two = Step(name="two", kind="command", argv=("true",))
    >>> without_other_secrets(two, [one, two], {"DB_PASSWORD": "...", "PATH": "/bin"})
    {'PATH': '/bin'}
    """
    of_all = {
        spelled for other in steps for name in other.secrets for spelled in _secret_spellings(name)
    }
    hidden = of_all - {spelled for name in step.secrets for spelled in _secret_spellings(name)}
    return {name: value for name, value in environment.items() if name not in hidden}


def _secret_spellings(name: str) -> set[str]:
    """Return the variables that may hold a secret."""
    return {name, variable_name(name), SECRET_PREFIX + variable_name(name)}


def _read_secret_file(folder: str, name: str) -> str | None:
    try:
        return Path(folder, name).read_text().rstrip("\n")
    except (OSError, ValueError):
        return None
