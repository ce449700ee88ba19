"""Command of a step in a pod that a small Python program runs and measures, if the image has one.

The program of a step is measured if it is that of Python, or of a shell, which can find out whether
there is Python. Others are started as they are: an image may have neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from hyperplane.jobs.runners import measured_program
from hyperplane.platforms.kubernetes.staged_files import StagedFile
from hyperplane.platforms.local import process_meter

#: Folder of the programs in a pod; not in that of the step, which may list its files.
_FOLDER = "/var/lib/hyperplane-program"
#: The first one is started. Not imported, because an older Python has to read it.
_FILES = (
    Path(__file__).with_name("pod_program.py"),
    Path(measured_program.__file__),
    Path(process_meter.__file__),
)
_PROGRAM = f"{_FOLDER}/{_FILES[0].name}"
#: Without packages, whose import takes longer, and without compiled files. -E would ignore the
#: PYTHONHOME of an image, too.
_OPTIONS = "-SB"
_PYTHON = re.compile(r"python[\d.]*")
#: Shells that are used as they are; bash needs an option so that it reads no file at its start and
#: imports no functions.
_SHELLS = ("sh", "dash", "ash")
#: Text of the shell: the Python of an image may be a stub that fails. It sets no variable, which
#: may be one of the step.
_FIND_PYTHON = "; ".join(
    [
        *(
            f'{name} {_OPTIONS} -c "" 2>/dev/null && exec {name} {_OPTIONS} {_PROGRAM} "$@"'
            for name in ("python3", "python")
        ),
        'exec "$@"',
    ]
)
#: With -p, bash replaces these variables, such as an errexit for all scripts. So the program is
#: started by env with those of the container, which a subshell reads.
_KEEP_OPTIONS = (
    'set -- "$(while IFS= read -rd ""; do case $REPLY in SHELLOPTS=*|BASHOPTS=*) echo "$REPLY";; '
    'esac; done 2>/dev/null </proc/self/environ)" "$@"; '
    'case $1 in "") shift;; *) set -- env $1 "${@:2}";; esac; '
)


def measuring_words(words: Sequence[str]) -> list[str]:
    """Return the words before a command that measure it; none if that may not be possible.

    Examples
    --------
    >>> measuring_words(["/opt/bin/python3.12", "clean.py"])
    ['/opt/bin/python3.12', '-SB', '/var/lib/hyperplane-program/pod_program.py']
    >>> measuring_words(["node", "clean.js"])
    []
    """
    first = words[0]
    name = PurePosixPath(first).name
    if _PYTHON.fullmatch(name):
        return [first, _OPTIONS, _PROGRAM]
    if name == "bash":
        return [first, "-p", "-c", _KEEP_OPTIONS + _FIND_PYTHON, first]
    if name in _SHELLS:
        return [first, "-c", _FIND_PYTHON, first]
    return []


def stage_measuring_programs() -> list[StagedFile]:
    """Return the files that these words need."""
    return [
        StagedFile(f"hyperplane-measure-{number}", f"{_FOLDER}/{file.name}", file.read_bytes())
        for number, file in enumerate(_FILES)
    ]
