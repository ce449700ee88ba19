"""What the steps of a job have saved: lists with previews, pictures and downloads.

Paths of these pages have a key of a record in the job store, never a path of a file. A file is
opened only if it is the one that was recorded, without links; see
:mod:`hyperplane.jobs.artifact_files`. Objects of stores are read only for the page of one artifact
and for downloads, up to a size; see :mod:`hyperplane.jobs.artifact_objects`.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple
from urllib.parse import quote

from hyperplane.core.errors import JobError
from hyperplane.core.html_output import Markup, escape, make_link
from hyperplane.core.units import format_bytes
from hyperplane.jobs.artifact_files import ArtifactUnavailable, open_artifact
from hyperplane.jobs.artifact_html import render_preview
from hyperplane.jobs.artifact_objects import is_object, open_object
from hyperplane.jobs.artifact_previews import (
    PICTURE_BYTES,
    PREVIEWED,
    NoPreview,
    find_media_type,
    read_preview,
)
from hyperplane.jobs.artifacts import read_artifacts
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.store.artifact_records import (
    OUTPUT,
    PICTURE,
    Artifact,
    describe_origin,
)
from hyperplane.jobs.store.job_records import Job
from hyperplane.ui.elements import (
    make_facts,
    make_note,
    make_page_link,
    make_path,
    make_section,
    make_table,
    make_time,
    shorten,
)
from hyperplane.ui.job_store import open_job_store
from hyperplane.ui.paging import Paging
from hyperplane.ui.view import PageNotFound, PageRequest, View

#: Artifacts of a page, and those of the page of the job; previews of a page, and at the same time.
PAGE_SIZE, JOB_SIZE, _PREVIEWS, _AT_ONCE = 100, 20, 10, 4
_TITLES = ("artifact", "step", "kind", "saved", "size", "rows")
_BLOCK = 1 << 18
#: Bytes of a file by which a picture is recognized.
_SIGNATURE_BYTES = 4096


class SentFile(NamedTuple):
    """A file that a browser receives.

    Parameters
    ----------
    blocks : iterator of bytes
        The content.
    size : int
        Bytes.
    media_type : str
        Media type of the content.
    disposition : str
        The header with the name of the file.
    """

    blocks: Iterator[bytes]
    size: int
    media_type: str
    disposition: str


def list_artifacts(request: PageRequest) -> View:
    """Return the artifacts of a job, newest first, with previews of some."""
    job, artifacts = _read_job(request)
    paging = Paging.read(request.query.get("page", ""), PAGE_SIZE)
    found = artifacts[::-1][: paging.limit]
    shown = paging.select(found)
    links = paging.make_links(
        len(found), lambda page: make_path("jobs", job.id, "artifacts", page=page)
    )
    return describe_artifacts(job, shown, paging.describe("artifacts", len(shown)), links)


def describe_artifacts(
    job: Job, artifacts: Sequence[Artifact], caption: str, links: str = ""
) -> View:
    """Return artifacts of a job with previews of the first ones."""
    title = f"Artifacts of {shorten(job.run_name or job.id)}"
    back = make_page_link(make_path("jobs", job.id), "The job")
    table = make_artifact_table(job, artifacts, caption)
    return View(title, (back, table, Markup(links), *_show_previews(job, artifacts)))


def make_artifact_table(job: Job, artifacts: Sequence[Artifact], caption: str) -> Markup:
    """Return a table of artifacts with links to their pages."""
    rows = ([*_list_cells(job, each)] for each in artifacts)
    return make_table(caption, _TITLES, rows, numbers=2)


def _list_cells(job: Job, artifact: Artifact) -> Iterator[str]:
    yield make_page_link(_make_path(job, artifact), artifact.name)
    yield describe_origin(artifact)
    yield artifact.kind
    yield make_time(artifact.created)
    yield "" if artifact.size is None else format_bytes(artifact.size)
    yield "" if artifact.rows is None else f"{artifact.rows:,}"


def _show_previews(job: Job, artifacts: Sequence[Artifact]) -> Iterator[Markup]:
    chosen = [each for each in artifacts if each.kind in PREVIEWED][:_PREVIEWS]
    # Each table is read by a process, which takes a tenth of a second of a processor.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        previews = [*pool.map(partial(_make_preview, job), chosen)]
    for number, (artifact, preview) in enumerate(zip(chosen, previews, strict=True)):
        if not isinstance(preview, NoPreview):
            yield make_section(f"preview-{number}", shorten(artifact.name), preview)


def _make_preview(job: Job, artifact: Artifact, *, from_stores: bool = False) -> Markup | NoPreview:
    """Return a preview, or why there is none."""
    if artifact.kind == PICTURE:  # loaded apart from the page, with a separate policy
        if not (artifact.is_local or from_stores):
            return NoPreview("it is in an object store")
        try:
            _find_picture(artifact)
        except PageNotFound as error:
            return NoPreview(str(error))
        path = _make_path(job, artifact, "picture")
        text = escape(shorten(artifact.name))
        return Markup(f'<img class="hp-picture" src="{escape(path)}" alt="{text}"/>')
    preview = read_preview(artifact, job.output, from_stores=from_stores)
    return preview if isinstance(preview, NoPreview) else render_preview(preview, artifact.name)


def show_artifact(request: PageRequest) -> View:
    """Return one artifact with its preview."""
    job, artifact = _find(request)
    back = make_page_link(make_path("jobs", job.id, "artifacts"), "All artifacts of the job")
    shown = _make_preview(job, artifact, from_stores=True)
    preview = make_note(shown.reason) if isinstance(shown, NoPreview) else shown
    section = make_section("preview", "Preview", preview)
    return View(shorten(artifact.name), (back, make_facts(_list_facts(job, artifact)), section))


def _list_facts(job: Job, artifact: Artifact) -> Iterator[tuple[str, str]]:
    yield "job", make_page_link(make_path("jobs", job.id), job.run_name or job.id)
    yield "step", describe_origin(artifact)
    yield "attempt", str(artifact.attempt or "")
    yield "kind", artifact.kind
    yield "format", artifact.format
    yield "size", "" if artifact.size is None else format_bytes(artifact.size)
    yield "rows", "" if artifact.rows is None else f"{artifact.rows:,}"
    yield "files", "" if artifact.files is None else str(artifact.files)
    yield "saved", make_time(artifact.created)
    yield "address", artifact.url if artifact.is_local else make_link(artifact.url)
    if artifact.kind == OUTPUT or _can_send(artifact):
        yield "download", make_page_link(_make_path(job, artifact, "download"), artifact.name)
    else:
        words = ("hyperplane", "job", "artifact", job.id[:8], artifact.name, "-o", "FOLDER")
        yield "download", shlex.join(words)


def _can_send(artifact: Artifact) -> bool:
    return is_object(artifact) or (artifact.is_local and not artifact.is_folder)


def send_picture(request: PageRequest) -> SentFile:
    """Return a picture; other files are no pictures, whatever their name."""
    _, artifact = _find(request)
    media_type = _find_picture(artifact)
    with ExitStack() as stack:
        return _make_content(stack, _open(stack, artifact), artifact, media_type)


def _find_picture(artifact: Artifact) -> str:
    """Return the media type of a picture.

    Raises
    ------
    PageNotFound
        If it is none, or too large.
    """
    if artifact.kind != PICTURE or artifact.is_folder or (artifact.size or 0) > PICTURE_BYTES:
        raise PageNotFound("there is no such picture")
    with ExitStack() as stack:
        opened = _open(stack, artifact, _SIGNATURE_BYTES)
        media_type = find_media_type(artifact, opened.read(_SIGNATURE_BYTES))
    if not media_type:
        raise PageNotFound("this file is no picture")
    return media_type


def send_artifact(request: PageRequest) -> SentFile:
    """Return an artifact as a file to save."""
    job, artifact = _find(request)
    if artifact.kind == OUTPUT:
        data = (job.output or "").encode(errors="replace")
        disposition = _make_disposition("output.txt")
        return SentFile(iter([data]), len(data), "application/octet-stream", disposition)
    if not _can_send(artifact):
        raise PageNotFound("only files, and small objects of stores, can be downloaded here")
    with ExitStack() as stack:
        opened = _open(stack, artifact)
        return _make_content(stack, opened, artifact, "application/octet-stream")


def _open(stack: ExitStack, artifact: Artifact, beginning: int | None = None) -> BinaryIO:
    try:
        if artifact.is_local:
            return stack.enter_context(open_artifact(artifact))
        return stack.enter_context(open_object(artifact, beginning))
    except ArtifactUnavailable as error:
        raise PageNotFound(f"{shorten(artifact.name)}: {error}") from error


def _make_content(
    stack: ExitStack, opened: BinaryIO, artifact: Artifact, media_type: str
) -> SentFile:
    """Return the content of an open file, which is closed after its last block."""
    size = artifact.size or 0
    if not artifact.is_local:  # a copy of what the store has now
        size = os.fstat(opened.fileno()).st_size
    disposition = _make_disposition(PurePosixPath(artifact.name).name)
    return SentFile(_read_blocks(stack.pop_all(), opened, size), size, media_type, disposition)


def _read_blocks(stack: ExitStack, opened: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield exactly as many bytes as were recorded: a file that grows meanwhile has more."""
    with stack:
        while size > 0 and (block := opened.read(min(_BLOCK, size))):
            size -= len(block)
            yield block


def _make_disposition(name: str) -> str:
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


def _find(request: PageRequest) -> tuple[Job, Artifact]:
    job, artifacts = _read_job(request)
    for artifact in artifacts:
        if make_key(artifact) == request.names["key"]:
            return job, artifact
    raise PageNotFound(f"job {job.id} has no such artifact")


def _read_job(request: PageRequest) -> tuple[Job, list[Artifact]]:
    store = open_job_store()
    try:
        job = find_job(store, request.names["id"])
    except JobError as error:
        raise PageNotFound(str(error)) from error
    return job, read_artifacts(store, job)


def make_key(artifact: Artifact) -> str:
    """Return the key of an artifact in the paths of its pages."""
    text = "\0".join((artifact.step, str(artifact.chunk), artifact.name))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:24]


def _make_path(job: Job, artifact: Artifact, *more: str) -> str:
    return make_path("jobs", job.id, "artifacts", make_key(artifact), *more)
