"""Source of a submitted function, kept beside its pickle for the tracebacks of its errors.

A function of a program or notebook is pickled with its code, which has no source, and in recent
versions of cloudpickle no file name. The program may also have changed before the job runs. Other
lines of the program are not kept: they may have secrets.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import cloudpickle

from hyperplane.core.errors import HyperplaneError
from hyperplane.core.tracebacks import (
    is_user,
    keep_user_frames,
    list_causes,
    name_cell,
    walk_traceback,
)

#: Most characters of the last line of a log, which the reason of a failed step repeats.
_MAX_SUMMARY = 1000
#: Most frames of libraries below the last one of the user, without a summary of the user's; most
#: frames in it.
_MAX_LIBRARY_FRAMES, _MAX_USER_FRAMES = 3, 6
_SUMMARY_TITLE = "The lines of your program in this traceback"
#: Files of the code objects that cloudpickle loads.
_PICKLED = ("", "<dynamic-code>")


class SourcePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickler that notes the code objects that it writes."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.codes: list[CodeType] = []

    def reducer_override(self, obj: Any) -> Any:
        """Note a code object; reduce as cloudpickle does."""
        if isinstance(obj, CodeType):
            self.codes.append(obj)
        return super().reducer_override(obj)


def pickle_with_sources(value: Any) -> tuple[bytes, str]:
    """Return a pickle, and the sources of the functions in it as JSON."""
    file = io.BytesIO()
    pickler = SourcePickler(file)
    pickler.dump(value)
    return file.getvalue(), _to_json(pickler.codes)


def _to_json(codes: list[CodeType]) -> str:
    files: dict[str, dict[int, str]] = {}
    places: dict[str, str] = {}
    for code in codes:
        lines = linecache.getlines(code.co_filename)
        if not lines:
            continue
        name = _name_file(code.co_filename)
        kept = files.setdefault(name, {})
        kept.update((number, lines[number - 1]) for number in _list_lines(code, len(lines)))
        # Two functions of the same name and line, of two cells, cannot be distinguished.
        places[_key(code)] = name if places.get(_key(code), name) == name else ""
    return json.dumps({"files": files, "codes": places})


def _list_lines(code: CodeType, count: int) -> range:
    """Return the numbers of the lines of a function in a file of some lines."""
    ends = [end for _, end, _, _ in code.co_positions() if end is not None]
    return range(code.co_firstlineno, min(max(ends, default=0), count) + 1)


def _name_file(file: str) -> str:
    """Return the path of a file; of a notebook's cell its number, as IPython shows it."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return (name_cell(shell, file) if shell is not None else None) or file


def _key(code: CodeType) -> str:
    return f"{code.co_qualname}:{code.co_firstlineno}"


def format_error(error: BaseException, first: TracebackType | None, sources: Path) -> str:
    """Return an error of a submitted function as a log shows it: with the user's frames.

    An error of this package has its message first, then the frames, its causes and, as the last
    line of the log is the reason of the step, the message in one line. If an error was raised deep
    in a library, the frames of the user follow once more, because the end of a log is shown first.

    Parameters
    ----------
    error : BaseException
        The error.
    first : TracebackType, optional
        The frame of the submitted function.
    sources : Path
        File with the sources as :func:`pickle_with_sources` returns them.
    """
    is_own = isinstance(error, HyperplaneError)
    error.__traceback__ = keep_user_frames(first, is_own)
    shown = traceback.TracebackException(
        type(error), error, error.__traceback__, lookup_lines=False
    )
    # Jobs of earlier versions have no such file.
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        _name_sources(shown, error, _load_sources(sources))
    if not is_own:
        return "".join([*shown.format(), *_summarize_user_frames(shown, error)])
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    lines = ["".join(shown.format_exception_only())]
    if shown.stack:
        lines += ["Traceback (most recent call last):\n", *shown.stack.format()]
    lines += [f"{cause}\n" for cause in list_causes(error)]
    return "".join([*lines, f"{name}: {' '.join(str(error).split())[:_MAX_SUMMARY]}\n"])


def _summarize_user_frames(shown: traceback.TracebackException, error: BaseException) -> list[str]:
    """Return the frames of the user and the message, if many frames of libraries are below."""
    nodes = list(walk_traceback(error.__traceback__))
    places = [place for place, node in enumerate(nodes) if is_user(node.tb_frame)]
    if not places or len(nodes) - places[-1] - 1 <= _MAX_LIBRARY_FRAMES:
        return []
    frames = [shown.stack[place] for place in places[-_MAX_USER_FRAMES:]]
    lines = traceback.StackSummary.from_list(frames).format()
    return [f"\n{_SUMMARY_TITLE}:\n", *lines, *shown.format_exception_only()]


def _load_sources(file: Path) -> dict[str, str]:
    """Add the stored sources to those that tracebacks show; return the file of each function."""
    document = json.loads(file.read_text(encoding="utf-8"))
    for name, kept in document["files"].items():
        lines = [kept.get(str(number), "\n") for number in range(1, max(map(int, kept)) + 1)]
        # Without a time the cache does not compare it with a file of that name.
        linecache.cache[name] = (len(lines), None, lines, name)
    places: dict[str, str] = document["codes"]
    return places


def _name_sources(
    shown: traceback.TracebackException, error: BaseException, places: dict[str, str]
) -> None:
    """Give the frames of an error, and of those before it, the files of their functions."""
    # A chain may be longer than the recursion limit. It has no cycle: TracebackException repeats
    # no cause or context.
    pending = [(shown, error)]
    while pending:
        shown, error = pending.pop()
        for frame, node in zip(shown.stack, walk_traceback(error.__traceback__), strict=False):
            code = node.tb_frame.f_code
            if _is_pickled(code.co_filename):
                frame.filename = places.get(_key(code)) or frame.filename
        pending += _list_related(shown, error)


def _is_pickled(file: str) -> bool:
    """Return whether a file of code is that of a pickled function, and not of a library.

    Former versions of cloudpickle keep the name of a notebook's cell, which is no file.
    """
    return file in _PICKLED or not (file.startswith("<") or Path(file).exists())


def _list_related(
    shown: traceback.TracebackException, error: BaseException
) -> Iterator[tuple[traceback.TracebackException, BaseException]]:
    related = [(shown.__cause__, error.__cause__), (shown.__context__, error.__context__)]
    if isinstance(error, BaseExceptionGroup):
        related += zip(shown.exceptions or (), error.exceptions, strict=False)
    for inner, inner_error in related:
        if inner is not None and inner_error is not None:
            yield inner, inner_error
