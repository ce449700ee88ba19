"""Fetch an artifact of a job: a file, a folder, or the output of the job."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hyperplane.core.argument_checks import (
    describe_value,
    find_count_faults,
    find_flag_faults,
)
from hyperplane.core.errors import Fault, HyperplaneError, JobError, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.jobs.artifact_files import ArtifactUnavailable, FileIdentity, open_artifact
from hyperplane.jobs.artifacts import choose_artifact, list_artifacts
from hyperplane.jobs.job_control import Submitted, to_job_id
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.store.artifact_records import OUTPUT, Artifact
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.objectstore.special_files import is_special_file

if TYPE_CHECKING:
    from hyperplane.objectstore.locations import Store

_ADVICE = "choose another name, or overwrite it"


@check_call(outcome="nothing was written")
def download_artifact(
    job: str | Submitted,
    name: str,
    file: str | os.PathLike[str] | None = None,
    *,
    step: str | None = None,
    chunk: int | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Path:
    """Copy an artifact of a job to a file or folder, also from an object store.

    A file of a disk is copied only if it has not changed since its step ended. A folder, and what
    is in an object store, is copied as it is now.

    Parameters
    ----------
    job : str or Submitted
        The job, as for :func:`~hyperplane.jobs.list_artifacts`.
    name : str
        Name of the artifact, the end of its name after a slash, or its address.
    file : path, optional
        The file or folder to write; by default one of the same name in the current folder. In a
        folder that exists, the artifact keeps its name.
    step : str, optional
        The step, if several have an artifact of this name.
    chunk : int, optional
        The chunk, from 0.
    overwrite : bool
        Whether a file that exists is replaced; folders are never replaced.
    storage_options : mapping, optional
        Options of the file system for an artifact in an object store; those that the step has
        passed to :func:`hyperplane.save` are not stored.

    Returns
    -------
    pathlib.Path
        The absolute path of the file or folder.

    Raises
    ------
    RequestError
        With every fault of the call, such as a file that exists.
    JobError
        If there is no such job or artifact, several match, or its file was removed or has changed.
    StorageError
        If an object store refuses a request.

    Examples
    --------
    >>> download_artifact("nightly#12", "delays.parquet")  # doctest: +SKIP
    PosixPath('/home/ada/delays.parquet')
    """
    check([
        *_find_text_faults("name", name),
        *([] if file is None else _find_path_faults(file)),
        *([] if chunk is None else find_count_faults("chunk", chunk, 0)),
        *find_flag_faults(overwrite=overwrite),
        *_find_option_faults(storage_options),
    ])  # fmt: skip
    listed = list_artifacts(job, step)
    found = find_job(open_store(), to_job_id(job))
    artifact = choose_artifact(found, listed, name, chunk)
    target = find_target(artifact, None if file is None else Path(file), overwrite)
    if is_several(artifact):
        _copy_folder(found, artifact, target, storage_options)
        return target
    with open_draft(target, overwrite) as draft:
        write_artifact(found, artifact, draft, storage_options)
    return target


def _find_text_faults(where: str, value: object) -> list[Fault]:
    if isinstance(value, str) and value:
        return []
    return [Fault(where, describe_value(value), "text that is not empty")]


def _find_path_faults(file: object) -> list[Fault]:
    is_path = isinstance(file, str | os.PathLike) and isinstance(os.fspath(file), str)
    if is_path and str(file) and "\0" not in str(file):
        return []
    return [Fault("file", describe_value(file), "the path of a file")]


def _find_option_faults(options: object) -> list[Fault]:
    if options is None or isinstance(options, Mapping):
        return []
    type_name = f"a {type(options).__name__}"  # not its value, which may be a secret
    return [Fault("storage_options", type_name, "a mapping for fsspec")]


def find_target(artifact: Artifact, file: Path | None, overwrite: bool) -> Path:
    """Return the absolute path to which an artifact is copied.

    Raises
    ------
    RequestError
        If it exists and must not be replaced, or its folder does not exist.
    """
    base_name = PurePosixPath(artifact.name).name
    base_name = f"{base_name}.txt" if artifact.kind == OUTPUT else base_name
    base_name = base_name if base_name not in ("", ".", "..") else "artifact"
    target = Path(base_name) if file is None else file.expanduser()
    if target.is_dir():
        target /= base_name
    target = Path(os.path.abspath(target))  # noqa: PTH100 - a link is replaced, not its target
    shown = repr(str(target))[:200]
    if not target.parent.is_dir():
        check([Fault("file", shown, "a file in a folder that exists", "create the folder")])
    if os.path.lexists(target) and not (overwrite and not target.is_dir()):
        check([Fault("file", shown, "a file that does not exist", _ADVICE)])
    return target


def is_several(artifact: Artifact) -> bool:
    """Return whether an artifact may be several files."""
    return artifact.is_folder or artifact.files is None


def write_artifact(
    job: Job,
    artifact: Artifact,
    file: BinaryIO,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write the content of an artifact that is one file.

    Raises
    ------
    JobError
        If its file was removed or has changed.
    StorageError
        If an object store refuses a request.
    """
    if artifact.kind == OUTPUT:
        file.write((job.output or "").encode(errors="surrogatepass"))
    elif artifact.is_local:
        try:
            with open_artifact(artifact) as opened:
                shutil.copyfileobj(opened, file, 1 << 20)
                if FileIdentity.of(os.fstat(opened.fileno())) != FileIdentity.parse(
                    artifact.identity
                ):
                    raise ArtifactUnavailable("it has changed while it was copied")
        except ArtifactUnavailable as error:
            message = f"the artifact {artifact.name!r} cannot be copied: {error}"
            raise JobError(job.id, f"{message}; the job ran on {job.machine}") from error
    else:
        _fetch(job, artifact, file, storage_options)


def _fetch(job: Job, artifact: Artifact, file: BinaryIO, options: Mapping[str, Any] | None) -> None:
    """Write the content of a file in an object store."""
    from hyperplane.objectstore.retrying import translate_errors
    from hyperplane.objectstore.save_target import resolve_target

    target = resolve_target(artifact.url, options)
    _check_store(job, artifact, target.store)
    with (
        translate_errors(target.url, options),
        target.store.system.open(target.path, "rb") as opened,
    ):
        shutil.copyfileobj(opened, file, 1 << 20)


def _check_store(job: Job, artifact: Artifact, store: Store) -> None:
    """Check that a store is none of this machine, whose files have no identity there.

    Raises
    ------
    JobError
        If it is the disk.
    """
    if store.local:
        message = f"the artifact {artifact.name!r} cannot be copied: its address {artifact.url}"
        raise JobError(job.id, f"{message} leads to files of this machine; copy them yourself")


def _copy_folder(
    job: Job, artifact: Artifact, folder: Path, options: Mapping[str, Any] | None
) -> None:
    """Copy the files of a folder, as they are published now, to a new folder."""
    # Imported here: it takes a third of a second, and most artifacts are files.
    from hyperplane.objectstore.retrying import translate_errors
    from hyperplane.objectstore.save_target import resolve_target
    from hyperplane.storage.commit_protocol import commit_protocol_for

    own_options = None if artifact.is_local else options
    target = resolve_target(artifact.url, own_options)
    if not artifact.is_local:
        _check_store(job, artifact, target.store)
    commits = commit_protocol_for(target)
    with translate_errors(target.url, own_options):
        manifest = commits.read_state().manifest
    if manifest is None:
        message = f"the artifact {artifact.name!r} cannot be copied: nothing is at {artifact.url}"
        raise JobError(job.id, f"{message}; the job ran on {job.machine}")
    names = [part.name for part in manifest.parts]
    if any(PurePosixPath(name).is_absolute() or ".." in name.split("/") for name in names):
        raise JobError(job.id, f"{artifact.url} has names of files outside of the folder")
    draft = folder.with_name(f".{folder.name[:80]}.{secrets.token_hex(4)}")
    system: Any = commits.target.store.system
    try:
        for name, path in zip(names, commits.part_paths(manifest), strict=True):
            to = draft / name if name else draft
            to.parent.mkdir(parents=True, exist_ok=True)
            commits.store_files.call(path, partial(system.get_file, path, str(to)))
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def open_draft(target: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a new file that becomes the target at the end of the block, whole or not at all.

    Raises
    ------
    RequestError
        If it cannot be written, or has come to exist and must not be replaced.
    """
    draft = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as opened:
            yield cast("BinaryIO", opened)
        if is_special_file(target):
            raise FileExistsError(errno.EEXIST, "it is a device, pipe or socket")
        if not overwrite and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "it has come to exist meanwhile")
        draft.replace(target)
    except HyperplaneError:  # an error of a store is an OSError, too
        raise
    except OSError as error:
        allowed = f"a new file that can be written ({error.strerror or error})"
        raise RequestError([Fault("file", repr(str(target))[:200], allowed)]) from error
    finally:
        draft.unlink(missing_ok=True)
