"""Small previews of artifacts: the first rows of a table, a picture, a notebook, lines of text.

Everything is bounded, whatever the size of the file, and nothing is executed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

from hyperplane.core.units import format_bytes, plural
from hyperplane.jobs.artifact_files import ArtifactUnavailable, open_artifact
from hyperplane.jobs.artifact_objects import open_object
from hyperplane.jobs.parquet_process import FirstRowsCache, PreviewFailed
from hyperplane.jobs.store.artifact_records import (
    FOLDER,
    NOTEBOOK,
    OUTPUT,
    PICTURE,
    TABLE,
    TEXT,
    Artifact,
)

#: Rows, columns, and characters of a cell of a table.
ROWS, COLUMNS, CELL_LENGTH = 10, 20, 80
#: Bytes of a text, and of the beginning of a file with separated values.
TEXT_BYTES, _CSV_BYTES = 16_384, 65_536
#: Bytes of the largest picture, and of the largest notebook.
PICTURE_BYTES, _NOTEBOOK_BYTES = 10_000_000, 20_000_000
#: Beginnings of the files of pictures, by their types.
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
SVG = "image/svg+xml"
_first_rows = FirstRowsCache()


class TablePreview(NamedTuple):
    """The first rows of a table, as text."""

    titles: list[str]
    rows: list[list[str]]
    note: str = ""


class PicturePreview(NamedTuple):
    """A picture and its media type."""

    data: bytes
    media_type: str


class TextPreview(NamedTuple):
    """The beginning of a text."""

    text: str
    note: str = ""


class NotebookPreview(NamedTuple):
    """The JSON document of a notebook."""

    document: Mapping[str, Any]


class NoPreview(NamedTuple):
    """Why there is no preview."""

    reason: str


Preview = TablePreview | PicturePreview | TextPreview | NotebookPreview | NoPreview


def read_preview(
    artifact: Artifact, output: str | None = None, *, from_stores: bool = False
) -> Preview:
    """Return a preview of an artifact.

    Parameters
    ----------
    artifact : Artifact
        The artifact.
    output : str, optional
        The output of its job.
    from_stores : bool
        Whether what is in an object store is read, which may take seconds.
    """
    if artifact.kind == OUTPUT:
        text = output or ""
        return TextPreview(text[:TEXT_BYTES], _note_cut(len(text) > TEXT_BYTES))
    name = artifact.format if artifact.kind == TABLE else artifact.kind
    read = _READERS.get(name)
    if read is None:
        return NoPreview(f"there is no preview of {artifact.format or 'other'} files")
    is_far = from_stores and not artifact.is_local
    try:
        with (
            open_object(artifact, _BEGINNINGS.get(name))
            if is_far
            else open_artifact(artifact) as opened
        ):
            return read(artifact, opened)
    except (ArtifactUnavailable, PreviewFailed) as error:
        return NoPreview(str(error))
    except Exception as error:  # noqa: BLE001 - what damaged files raise depends on their content
        return NoPreview(f"its content cannot be shown ({type(error).__name__})")


def find_media_type(artifact: Artifact, beginning: bytes) -> str:
    """Return the media type of a picture by its content; empty if it is none.

    Examples
    --------
    >>> find_media_type(Artifact("3f0c", "plot", -1, 1, "a.png", "picture", "png"), b"<html>")
    ''
    """
    for signature, media_type in _SIGNATURES.items():
        if beginning.startswith(signature):
            is_other = media_type == "image/webp" and beginning[8:12] != b"WEBP"
            return "" if is_other else media_type
    return SVG if artifact.format == "svg" and b"<svg" in beginning else ""


def _read_picture(artifact: Artifact, opened: BinaryIO) -> Preview:
    data = opened.read(PICTURE_BYTES + 1)
    if len(data) > PICTURE_BYTES:
        return NoPreview(f"pictures of at most {format_bytes(PICTURE_BYTES)} are shown")
    media_type = find_media_type(artifact, data[:4096])
    return PicturePreview(data, media_type) if media_type else NoPreview("it is no picture")


def _read_text(artifact: Artifact, opened: BinaryIO) -> Preview:
    del artifact
    data = opened.read(TEXT_BYTES + 1)
    text = data[:TEXT_BYTES].decode(errors="replace")
    return TextPreview(text, _note_cut(len(data) > TEXT_BYTES))


def _note_cut(is_cut: bool) -> str:
    return f"the first {format_bytes(TEXT_BYTES)}" if is_cut else ""


def _read_notebook(artifact: Artifact, opened: BinaryIO) -> Preview:
    del artifact
    data = opened.read(_NOTEBOOK_BYTES + 1)
    if len(data) > _NOTEBOOK_BYTES:
        return NoPreview(f"notebooks of at most {format_bytes(_NOTEBOOK_BYTES)} are shown")
    document = json.loads(data)
    is_notebook = isinstance(document, dict) and isinstance(document.get("cells"), list)
    return NotebookPreview(document) if is_notebook else NoPreview("it is no notebook")


def _read_csv(artifact: Artifact, opened: BinaryIO) -> Preview:
    data = opened.read(_CSV_BYTES + 1)
    is_cut = len(data) > _CSV_BYTES
    text = data[:_CSV_BYTES].decode(errors="replace").removeprefix("\ufeff")
    if is_cut:  # without the beginning of the next line
        text = text[: text.rfind("\n") + 1] or text
    first = text.partition("\n")[0]
    delimiter = "\t" if artifact.format == "tsv" else max(",;\t", key=first.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows = [row for row, _ in zip(lines, range(ROWS + 1), strict=False)]
    if not rows:
        return NoPreview("it is empty")
    width = max(map(len, rows))
    cells = [[_cut(cell) for cell in [*row, *[""] * (width - len(row))][:COLUMNS]] for row in rows]
    return TablePreview(cells[0], cells[1:], _describe(artifact.rows, width))


def _read_parquet(artifact: Artifact, opened: BinaryIO) -> Preview:
    # What was opened is the file with this identity; a copy of an object has none.
    key: tuple[str, ...] = (artifact.url, artifact.identity)
    if not artifact.is_local:
        key = (hashlib.sha256(opened.read()).hexdigest(),)
        opened.seek(0)
    table = _first_rows.read(key, opened, ROWS, COLUMNS, CELL_LENGTH)
    rows = [list(map(_cut, cells)) for cells in zip(*table.columns, strict=True)]
    count = artifact.rows if artifact.is_folder else table.row_count
    titles = list(map(_cut, table.names))
    return TablePreview(titles, rows, _describe(count, table.column_count))


def _describe(rows: int | None, columns: int) -> str:
    texts = [] if rows is None else [f"{rows:,} row{'' if rows == 1 else 's'}"]
    shown = f", of which {COLUMNS} are shown" if columns > COLUMNS else ""
    return ", ".join([*texts, f"{plural(columns, 'column')}{shown}"])


def _cut(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= CELL_LENGTH else f"{text[:CELL_LENGTH]}…"


#: Readers by the format of a table, and by the kind of other artifacts.
_READERS: Mapping[str, Callable[[Artifact, BinaryIO], Preview]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "tsv": _read_csv,
    PICTURE: _read_picture,
    NOTEBOOK: _read_notebook,
    TEXT: _read_text,
}
#: Bytes of the beginning of an object that are enough for a preview.
_BEGINNINGS = {"csv": _CSV_BYTES + 1, "tsv": _CSV_BYTES + 1, TEXT: TEXT_BYTES + 1}
#: Kinds of artifacts that may have a preview.
PREVIEWED = (TABLE, PICTURE, NOTEBOOK, TEXT, OUTPUT, FOLDER)
