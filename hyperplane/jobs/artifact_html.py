"""Artifacts as HTML: a table with links, and small previews."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hyperplane.core.html_output import (
    Markup,
    escape,
    make_file_link,
    make_link,
    make_output,
    make_table,
)
from hyperplane.core.units import format_bytes, format_local_time, plural
from hyperplane.jobs.artifact_previews import (
    NoPreview,
    NotebookPreview,
    PicturePreview,
    Preview,
    TablePreview,
    TextPreview,
    read_preview,
)
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.notebook_steps.notebook_html import make_picture, render_notebook
from hyperplane.jobs.store.artifact_records import PICTURE, TABLE, Artifact, describe_origin

#: Most artifacts of a table, previews of each kind, and their rows and columns.
MOST_ARTIFACTS, _MOST_PREVIEWS, _ROWS, _COLUMNS = 50, 3, 5, 8
#: Bytes of the largest picture in a notebook, which is saved with it.
_PICTURE_BYTES = 200_000
_NAME_LENGTH = 200


def render_artifacts(artifacts: Sequence[Artifact]) -> str:
    """Return artifacts for a notebook."""
    if not artifacts:
        return make_output(Markup("<div>no artifacts</div>"))
    return make_output(*show_artifacts(artifacts))


def show_artifacts(artifacts: Sequence[Artifact]) -> Iterator[Markup]:
    """Yield a table of artifacts, and previews of some pictures and tables."""
    titles = ("artifact", "step", "kind", "size", "rows", "saved")
    yield make_table(titles, map(_list_cells, artifacts[:MOST_ARTIFACTS]))
    if len(artifacts) > MOST_ARTIFACTS:
        more = f"and {plural(len(artifacts) - MOST_ARTIFACTS, 'more artifact')}"
        yield Markup(f"<div>{escape(more)}</div>")
    for kind in (PICTURE, TABLE):
        of_kind = [each for each in artifacts if each.kind == kind and each.identity]
        for artifact in of_kind[:_MOST_PREVIEWS]:
            if kind == PICTURE and (artifact.size or 0) > _PICTURE_BYTES:
                continue
            preview = read_preview(artifact)
            if not isinstance(preview, NoPreview):
                yield _fold(artifact, shorten(preview))


def _list_cells(artifact: Artifact) -> Iterator[str]:
    name = to_plain_line(artifact.name)[:_NAME_LENGTH]
    if artifact.is_local:
        yield make_file_link(artifact.url, name)
    else:
        yield make_link(artifact.url, name) if artifact.url else name
    yield to_plain_line(describe_origin(artifact))
    yield artifact.kind
    yield "" if artifact.size is None else format_bytes(artifact.size)
    yield "" if artifact.rows is None else f"{artifact.rows:,}"
    yield format_local_time(artifact.created) if artifact.created else ""


def _fold(artifact: Artifact, preview: Preview) -> Markup:
    title = escape(to_plain_line(artifact.name)[:_NAME_LENGTH])
    content = render_preview(preview, artifact.name)
    return Markup(f'<details open="open"><summary>{title}</summary>{content}</details>')


def shorten(preview: Preview, rows: int = _ROWS, columns: int = _COLUMNS) -> Preview:
    """Return a preview of a table with fewer rows and columns; other previews as they are."""
    if not isinstance(preview, TablePreview):
        return preview
    return preview._replace(
        titles=preview.titles[:columns],
        rows=[row[:columns] for row in preview.rows[:rows]],
        note=preview.note.partition(", of which")[0],
    )


def render_preview(preview: Preview, name: str) -> Markup:
    """Return a preview as HTML, in which a picture is part of the page."""
    match preview:
        case TablePreview():
            note = Markup(f"<div>{escape(preview.note)}</div>")
            return Markup(f"{make_table(preview.titles, preview.rows)}{note}")
        case PicturePreview():
            return make_picture(preview.data, preview.media_type, to_plain_line(name))
        case TextPreview():
            note = Markup(f"<div>{escape(preview.note)}</div>") if preview.note else Markup("")
            return Markup(f"<pre>{escape(preview.text)}</pre>{note}")
        case NotebookPreview():
            return render_notebook(preview.document)
    return Markup(f"<div>{escape(preview.reason)}</div>")
