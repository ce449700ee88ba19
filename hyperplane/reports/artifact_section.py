"""What the steps of a job have saved, in its report: a table, and small previews."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hyperplane.core.units import format_bytes, plural
from hyperplane.jobs.artifact_html import shorten
from hyperplane.jobs.artifact_previews import (
    PicturePreview,
    TablePreview,
    TextPreview,
    read_preview,
)
from hyperplane.jobs.notebook_steps.notebook_html import make_picture
from hyperplane.jobs.store.artifact_records import (
    OUTPUT,
    PICTURE,
    TABLE,
    Artifact,
    describe_origin,
)
from hyperplane.reports.page import escape, grid, note, preformatted, section

#: Most artifacts of the table, and previews.
_ARTIFACTS, _PREVIEWS = 100, 12
#: Bytes of the largest picture, and of all pictures: a report has at most 5 MB.
_PICTURE_BYTES, _ALL_BYTES = 500_000, 1_500_000
#: Rows and columns of tables, and characters of an output.
_ROWS, _COLUMNS, _OUTPUT_LENGTH = 5, 8, 2000


def show_artifacts(artifacts: Sequence[Artifact], output: str | None) -> str:
    """Return a section with artifacts; empty without any. ``output`` is that of the job."""
    titles = ("artifact", "step", "kind", "address", "size", "rows")
    rows = (
        (
            each.name,
            describe_origin(each),
            each.kind,
            each.url,
            "" if each.size is None else format_bytes(each.size),
            "" if each.rows is None else f"{each.rows:,}",
        )
        for each in artifacts[:_ARTIFACTS]
    )
    left = len(artifacts) - _ARTIFACTS
    more = note(f"{plural(left, 'more artifact')}") if left > 0 else ""
    previews = _show_previews(artifacts, output)
    return section("Artifacts", grid(titles, rows, texts=4), more, *previews) if artifacts else ""


def _show_previews(artifacts: Sequence[Artifact], output: str | None) -> Iterator[str]:
    used = shown = 0
    content: str
    for each in artifacts:
        is_small = each.kind != PICTURE or (each.size or 0) <= _PICTURE_BYTES
        if each.kind not in (PICTURE, TABLE, OUTPUT) or not is_small:
            continue
        preview = shorten(read_preview(each, output), _ROWS, _COLUMNS)
        match preview:
            case PicturePreview(data, media_type):
                used += len(data)
                if used > _ALL_BYTES:
                    continue
                content = make_picture(data, media_type, each.name)
            case TablePreview(columns, cells, text):
                content = grid(columns, cells, texts=len(columns)) + note(text)
            case TextPreview(text):
                content = preformatted(text[:_OUTPUT_LENGTH])
            case _:
                continue
        yield f"<h3>{escape(each.name)}</h3>{content}"
        shown += 1
        if shown == _PREVIEWS:
            return
