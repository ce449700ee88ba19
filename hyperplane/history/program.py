"""Which program this process runs: what names its runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePath

from hyperplane.history.code_digest import digest_file

#: Variables of the steps of jobs, with the fields of a record.
_VARIABLES = {
    "job": "HYPERPLANE_JOB_ID",
    "pipeline": "HYPERPLANE_JOB_PIPELINE",
    "step": "HYPERPLANE_JOB_STEP",
}
#: Longest name that a record has.
_LONGEST = 128


def identify_program() -> dict[str, str]:
    """Return the fields ``job``, ``pipeline``, ``step`` and ``program`` of a record."""
    fields = {field: os.environ.get(name, "")[:_LONGEST] for field, name in _VARIABLES.items()}
    return {**fields, "program": find_program()}


def digest_program() -> str:
    """Return the digest of the script or notebook that this process runs; empty if unknown.

    It is that of the file as it is now: the start of a run calls it, as the file may change.
    """
    file = _find_file()
    return digest_file(Path(file)) if isinstance(file, str) and file else ""


def _find_file() -> object:
    # The main module of a kernel has no file; Jupyter Server sets this variable for kernels.
    main = sys.modules.get("__main__")
    return getattr(main, "__file__", None) or os.environ.get("JPY_SESSION_NAME", "")


def find_program() -> str:
    """Return the file name of the script or notebook that this process runs; empty if unknown.

    Of ``python -m`` it is the name of the module.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")[:_LONGEST]
    file = _find_file()
    return PurePath(file).name[:_LONGEST] if isinstance(file, str) else ""
