"""Tracebacks that lead to the user's code: without frames of this package and of thread pools.

In a notebook an error of this package is shown with its message first. With the environment
variable :data:`FULL` all frames are kept and shown.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

#: Environment variable that keeps all frames.
FULL = "HYPERPLANE_FULL_TRACEBACKS"
#: Modules of the standard library that call functions in threads and event loops.
_POOLS = ("asyncio", "concurrent", "contextlib", "functools", "threading")
#: Lines of code before and after the one of a frame, and most frames that are shown.
_CONTEXT, _MAX_FRAMES = 2, 20
#: Most causes of an error that are shown, and most characters of each.
_MAX_CAUSES, _MAX_CAUSE = 5, 500
_RED, _GREEN, _DIM, _END = "\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"


def keeps_all_frames() -> bool:
    """Return whether the user wants to see all frames."""
    return os.environ.get(FULL, "").strip().lower() not in ("", "0", "false", "no", "off")


def is_internal(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package."""
    return _find_package(frame) == "hyperplane"


def _find_package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({f"{os.path.realpath(paths[name])}{os.sep}" for name in names if name in paths})


def is_user(frame: FrameType) -> bool:
    """Return whether a frame runs code of neither this package nor an installed library."""
    file = frame.f_code.co_filename
    if is_internal(frame) or file.startswith(("<frozen", "<string>")):
        return False
    if any(f"{os.sep}{each}{os.sep}" in file for each in ("site-packages", "dist-packages")):
        return False
    return not os.path.realpath(file).startswith(_library_folders())


def walk_traceback(first: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the nodes of a traceback, the outermost first."""
    while first is not None:
        yield first
        first = first.tb_next


def remove_internal_frames(error: BaseException, is_own: bool) -> None:
    """Remove frames of this package and of thread pools below the calling frame.

    Parameters
    ----------
    error : BaseException
        The error, which the calling frame has caught.
    is_own : bool
        Whether it is an error of this package, whose message says what is wrong, or Ctrl-C: no
        frame below the last one of the user is kept. Of other errors these are, as they tell
        where it happened.
    """
    first = error.__traceback__
    if first is None or keeps_all_frames():
        return
    first.tb_next = keep_user_frames(first.tb_next, is_own)


def keep_user_frames(first: TracebackType | None, is_own: bool) -> TracebackType | None:
    """Return a traceback without frames of this package and of thread pools; see above."""
    nodes = list(walk_traceback(first))
    count = max((place for place, each in enumerate(nodes, 1) if is_user(each.tb_frame)), default=0)
    if not count and not is_own:
        return first
    kept = [each for each in nodes[:count] if not _is_of_call(each.tb_frame)]
    if not is_own:
        kept += nodes[count:]
    for node, following in zip(kept, [*kept[1:], None], strict=False):
        node.tb_next = following
    return kept[0] if kept else None


def _is_of_call(frame: FrameType) -> bool:
    """Return whether a frame is of this package, or of what it calls functions with."""
    return is_internal(frame) or _find_package(frame) in _POOLS


def render_error(error: BaseException) -> list[str]:
    """Return the parts that IPython shows of an error: the message, the user's lines, the causes.

    With ``%xmode Verbose`` or :data:`FULL` it is the traceback of IPython.
    """
    shell: Any = sys.modules["IPython"].get_ipython()
    handler = shell.InteractiveTB
    if keeps_all_frames() or getattr(handler, "mode", "") == "Verbose":
        shown: list[str] = handler.structured_traceback(type(error), error, error.__traceback__)
        return shown
    is_colored = str(getattr(shell, "colors", "")).lower() != "nocolor"
    parts = [_paint(type(error).__name__, _RED, is_colored) + f": {error}"]
    parts += [str(note) for note in getattr(error, "__notes__", ())]
    nodes = list(walk_traceback(error.__traceback__))
    users = [each for each in nodes if is_user(each.tb_frame)]
    parts += [_show_frame(shell, each, is_colored) for each in users[-_MAX_FRAMES:]]
    parts += list_causes(error)
    if not isinstance(error, ValueError):  # that of a request says all
        advice = f"%env {FULL}=1 shows all frames of the errors that follow."
        parts.append(_paint(advice, _DIM, is_colored))
    return parts


def _paint(text: str, color: str, is_colored: bool) -> str:
    return f"{color}{text}{_END}" if is_colored else text


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _MAX_CAUSE else f"{text[:_MAX_CAUSE]}…"


def list_causes(error: BaseException) -> Iterator[str]:
    """Yield the errors before an error, each with its relation to the one after it."""
    known = [error]
    while len(known) <= _MAX_CAUSES:
        last = known[-1]
        cause, context = last.__cause__, last.__context__
        before = cause or (None if last.__suppress_context__ else context)
        if before is None or any(before is each for each in known):
            return
        known.append(before)
        yield f"{'caused by' if cause else 'while handling'} {_describe(before)}"


def name_cell(shell: Any, file: str) -> str | None:
    """Return how IPython names the cell of a file, such as ``Cell In[3]``; None if it is none."""
    try:
        cell = shell.compile.format_code_name(file)
    except Exception:  # noqa: BLE001 - IPython before 8.0 has no such method
        return None
    return None if cell is None else f"{cell[0]} {cell[1]}"


def _show_frame(shell: Any, node: TracebackType, is_colored: bool) -> str:
    """Return the place of a frame, with the lines around it."""
    file, number = node.tb_frame.f_code.co_filename, node.tb_lineno
    name = node.tb_frame.f_code.co_name
    place = f"File {file}:{number}"
    cell = name_cell(shell, file)
    if cell is not None:
        place = f"{cell}, line {number}"
    within = "" if name == "<module>" else f", in {name}"
    lines = linecache.getlines(file, node.tb_frame.f_globals)
    first = max(1, number - _CONTEXT)
    shown = [_paint(place, _GREEN, is_colored) + within]
    for place_of, text in enumerate(lines[first - 1 : number + _CONTEXT], first):
        arrow = "---->" if place_of == number else "     "
        shown.append(f"{arrow} {place_of} {text.rstrip()}")
    return "\n".join(shown)
