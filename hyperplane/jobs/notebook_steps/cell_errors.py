"""Format the error of a notebook cell for the log of its step.

Part of the program that executes notebooks; imports nothing else of hyperplane.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

#: Tags of the cells that papermill adds to a notebook.
_PAPERMILL_TAGS = {"injected-parameters", "papermill-error-cell-tag"}
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
#: A stack frame as IPython shows it, and one in an installed package or in Python itself.
_FRAME = re.compile(r"(?:File |Cell )")
_INSTALLED = re.compile(
    r"File (?:\S*[/\\](?:site|dist)-packages[/\\]|\S*[/\\]lib(?:64)?[/\\]python\d|<frozen )"
)
_ARROW = re.compile(r"^-+> ", re.MULTILINE)
#: Maximum lines of a traceback that needs no summary, and frames and message lines of a summary.
_MAX_SHORT_LINES, _MAX_FRAMES, _MAX_MESSAGE_LINES = 16, 6, 3
#: Maximum characters of a line in a summary: commands show the end of a log, and reasons its last
#: line.
_MAX_LINE = 400


def describe_error(name: str, cell: str, error: str, message: str, traceback: Sequence[str]) -> str:
    """Format a cell's error: the traceback, and a summary if it is long or has library frames.

    Parameters
    ----------
    name : str
        Name of the notebook.
    cell : str
        The cell, as :func:`name_cell` returns it.
    error, message : str
        Class and text of the exception.
    traceback : sequence of str
        IPython's traceback: a line, a title, one text per frame, and the exception.

    Examples
    --------
    >>> print(describe_error("a.ipynb", "cell 2", "ValueError", "no", ["Cell In[2], line 1"]))
    a.ipynb: cell 2 failed
    Cell In[2], line 1
    ValueError: no
    """
    blocks = [_COLORS.sub("", block).rstrip("\n") for block in traceback]
    last = f"{error}: {message}".rstrip().rstrip(":")
    whole = "\n".join(blocks).strip("\n").splitlines()
    ends = {line.strip() for line in whole[-1:]}
    if not any(end.startswith(error) or last.endswith(end) for end in ends):
        whole += _shorten_message(last)
    is_short = len(whole) <= _MAX_SHORT_LINES and all(len(line) <= _MAX_LINE for line in whole)
    if is_short and not any(map(_INSTALLED.match, blocks)):
        return "\n".join([f"{name}: {cell} failed", *whole])
    return "\n".join(
        [
            f"{name}: full traceback of {cell}",
            *whole,
            "",
            f"{name}: {cell} failed",
            *_summarize_frames(blocks),
            *_shorten_message(last),
        ]
    )


def _summarize_frames(blocks: Iterable[str]) -> list[str]:
    """Return the first and last frames of the user's own code, each with its current line."""
    own_frames = [block for block in blocks if _FRAME.match(block) and not _INSTALLED.match(block)]
    summaries = [_summarize_frame(block) for block in own_frames]
    if len(summaries) > _MAX_FRAMES:
        omitted = f"... {len(summaries) - _MAX_FRAMES} more frames"
        summaries = [*summaries[:1], [omitted], *summaries[1 - _MAX_FRAMES :]]
    return [line for lines in summaries for line in lines]


def _summarize_frame(block: str) -> list[str]:
    title, *lines = block.splitlines()
    return [_cut_line(line) for line in (title, *filter(_ARROW.match, lines))][:2]


def _shorten_message(text: str) -> list[str]:
    """Return the lines of a message without the middle of a long one; long lines are cut."""
    lines = [_cut_line(line) for line in text.splitlines() if line.strip()]
    return (
        lines
        if len(lines) <= _MAX_MESSAGE_LINES + 1
        else [*lines[:_MAX_MESSAGE_LINES], "...", lines[-1]]
    )


def _cut_line(line: str) -> str:
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."


def name_cell(output: Path, index: int, count: object) -> str:
    """Name a cell by its number in the notebook as it was submitted.

    Parameters
    ----------
    output : Path
        The executed notebook.
    index : int
        Index of the cell in it, not counting papermill's error cells.
    count : int or None
        The execution count that Jupyter shows beside the cell.

    Examples
    --------
    >>> name_cell(Path("not there"), 4, 3)
    'cell 5 (In [3])'
    """
    shown = f" (In [{count}])" if count else ""
    try:
        cells: list[Any] = json.loads(output.read_bytes())["cells"]
        tags = [set(cell.get("metadata", {}).get("tags") or ()) for cell in cells]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f"cell {index + 1}{shown}"
    tags = [cell_tags for cell_tags in tags if "papermill-error-cell-tag" not in cell_tags]
    before = sum(1 for cell_tags in tags[:index] if not cell_tags & _PAPERMILL_TAGS)
    if index < len(tags) and tags[index] & _PAPERMILL_TAGS:
        return f"the cell with the job's parameters, after cell {before}{shown}"
    total = sum(1 for cell_tags in tags if not cell_tags & _PAPERMILL_TAGS)
    return f"cell {before + 1} of {total}{shown}"
