"""Write a report: a whole file or none."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, RequestError, check


def write_file(file: str | os.PathLike[str], text: str) -> Path:
    """Write a file atomically; return its absolute path.

    A file that exists is replaced and keeps its permissions; the target of a symbolic link, not the
    link. Anything else that exists, such as a folder or a device, is left alone.

    Raises
    ------
    RequestError
        If it is no path, or cannot be written.
    """
    path: object = file  # callers may pass another type
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        check([Fault("file", describe_value(file), "the path of a file")])
    try:
        target = Path(os.path.realpath(file))
        mode = _find_mode(target)
        draft = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text)
            if mode is not None:
                draft.chmod(mode)
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        allowed = "a file in a folder that exists and can be written"
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError([Fault("file", repr(str(file))[:200], allowed, reason)]) from error
    return target


def _find_mode(target: Path) -> int | None:
    """Return the permissions of the present file; None if there is none.

    Raises
    ------
    ValueError
        If it is no file.
    """
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it exists and is no file")
    return stat.S_IMODE(status.st_mode)
