"""Parameters of jobs as text and as environment variables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hyperplane.core.errors import Fault

PARAMETER_PREFIX = "HYPERPLANE_JOB_PARAMETER_"

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
    r"CLOUD_ML|CLOUD_RUN|AIP|"
    r"AZURE|SLURM|SBATCH|KUBERNETES|DOCKER|OMP|MKL|CUDA)_[A-Z0-9_]*|"
    r".*_PROXY|_"
)


def variable_name(name: str) -> str:
    """Convert to the name of a variable: upper case, ``_`` for all but letters and digits."""
    return re.sub("[^A-Z0-9]", "_", name.upper())


def is_protected(name: str) -> bool:
    """Whether parameters must not set a variable."""
    return bool(_PROTECTED.fullmatch(name)) or name[:1].isdigit()


def parameter_faults(parameters: Mapping[Any, Any]) -> list[Fault]:
    """Return the faults of parameters that cannot be environment variables."""
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
            sizes.append(len(as_json({name: text}).encode()))
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


def as_json(value: Any) -> str:
    """Convert a JSON value to text."""
    return json.dumps(value, ensure_ascii=False)


def parameters_as_text(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Convert parameters to text: values other than text become JSON."""
    return {
        name: value if isinstance(value, str) else as_json(value)
        for name, value in parameters.items()
    }


def parameter_variables(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of parameters: with the prefix, and without it unless protected."""
    variables: dict[str, str] = {}
    for name, value in parameters.items():
        variable = variable_name(name)
        variables[PARAMETER_PREFIX + variable] = value
        if not is_protected(variable):
            variables[variable] = value
    return variables
