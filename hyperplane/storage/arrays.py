"""Save Dask arrays and xarray objects as Zarr, and load them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import ReadError, StorageError
from hyperplane.core.optional import need
from hyperplane.core.progress import compute_with_progress
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.redaction import describe_error
from hyperplane.objectstore.save_target import Target
from hyperplane.storage.commit_protocol import CommitProtocol, commit_protocol_for
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.published_state import PublishedState, conflict_error
from hyperplane.storage.replaced_files import check_replaceable
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.single_file import exists_error
from hyperplane.storage.staging_folders import staging_folder, verify_listing

if TYPE_CHECKING:
    from hyperplane.storage.zarr_writing import ChunkWriter

#: Exceptions that Zarr and xarray raise for invalid metadata.
_METADATA_ERRORS = (AttributeError, KeyError, TypeError, ValueError)
#: Key of the units of variables of times in the details of a manifest; xarray stores no units.
_TIME_UNITS_KEY = "time_units"


@dataclass(frozen=True)
class PublishedFiles:
    """The published files with which those of an array are compared.

    Parameters
    ----------
    base : PublishedState
        What is published.
    kept : bool
        Whether the mode is ``"skip"`` and something is published, so that nothing is saved.
    existing : mapping of str to ManifestEntry
        Published files by name; equal ones are not written again.
    protected : bool
        Whether a file that differs from the published one is an error.
    """

    base: PublishedState
    kept: bool = False
    existing: Mapping[str, ManifestEntry] = field(default_factory=dict)
    protected: bool = False


def save_array(obj: Any, request: SaveRequest) -> SaveResult:
    """Save an array or data set as a Zarr store, published in one step.

    Files that exist with the same name, size, and checksum are not written again.

    Raises
    ------
    RequestError
        If Zarr does not support the object.
    OutputExists
        If something else is saved there and the mode is ``"error"``.
    """
    commits = commit_protocol_for(request.target)
    published = read_published_files(request, commits)
    if published.kept and published.base.manifest is not None:
        return make_result(request, published.base.manifest)
    with staging_folder(commits) as staged:
        published = compare_sizes(published, commits)
        parts, time_units = _write_files(obj, commits, staged, published)
        manifest = make_manifest(parts, find_array_kind(obj), time_units)
        return commit_files(request, commits, published, staged, manifest)


def read_published_files(
    request: SaveRequest, commits: CommitProtocol, *, complete: bool = True
) -> PublishedFiles:
    """Return the published files.

    ``complete`` is whether an interrupted commit is completed; otherwise nothing is written.
    """
    base = commits.read_state()
    check_replaceable(request.target.url, base.manifest)
    if complete:
        commits.finish_interrupted(base)
    if base.manifest is None:
        return PublishedFiles(base)
    if request.mode == "skip":
        return PublishedFiles(base, kept=True)
    existing = {part.name: part for part in base.manifest.parts}
    return PublishedFiles(base, existing=existing, protected=request.mode == "error")


def compare_sizes(published: PublishedFiles, commits: CommitProtocol) -> PublishedFiles:
    """Return the published files without those whose size has changed, unless protected."""
    if published.protected or not published.existing:
        return published
    listing = commits.store_files.list_files(commits.target.path)
    sizes = {name: int(info["size"] or 0) for name, info in listing.items()}
    same = {name: part for name, part in published.existing.items() if sizes.get(name) == part.size}
    return replace(published, existing=same)


def make_manifest(
    parts: Sequence[ManifestEntry], kind: str, time_units: Mapping[str, str]
) -> Manifest:
    """Return the manifest of the files of an array."""
    details = {_TIME_UNITS_KEY: dict(time_units)} if time_units else {}
    in_order = tuple(sorted(parts, key=lambda part: part.name))
    return Manifest("zarr", kind, in_order, details=details)


def commit_files(
    request: SaveRequest,
    commits: CommitProtocol,
    published: PublishedFiles,
    staged: str,
    manifest: Manifest,
) -> SaveResult:
    """Publish the files in a staging folder, unless the same ones are published already.

    Raises
    ------
    OutputExists
        If the published files are protected, and others.
    OutputConflict
        If something else has been published since ``published`` was read.
    StorageError
        If the store does not list all files.
    """
    old, parts = published.base.manifest, manifest.parts
    new = find_new_files(manifest, published)
    same = old is not None and (old.kind, old.parts) == (manifest.kind, parts)
    if same and not new:
        return make_result(request, manifest)
    if published.protected:
        raise exists_error(request)
    verify_listing(commits.store_files, staged, new)
    if len(new) < len(parts):
        _check_unchanged(commits, published.base)
    commits.publish(manifest, staged, published.base)
    return replace(make_result(request, manifest), written=len(new), published=True)


def find_new_files(manifest: Manifest, published: PublishedFiles) -> list[ManifestEntry]:
    """Return the files of a manifest that were not published when the save began."""
    return [part for part in manifest.parts if published.existing.get(part.name) != part]


def make_result(request: SaveRequest, manifest: Manifest) -> SaveResult:
    """Return the result of a save that has written nothing."""
    return SaveResult(request.target.url, len(manifest.parts), None, manifest.size)


def find_array_kind(obj: Any) -> str:
    """Return the kind of object for the manifest."""
    if type(obj).__module__.startswith("dask"):
        return "array"
    return "dataset" if type(obj).__name__ == "Dataset" else "dataarray"


def _write_files(
    obj: Any, commits: CommitProtocol, staged: str, published: PublishedFiles
) -> tuple[list[ManifestEntry], Mapping[str, str]]:
    """Write new files to the staging folder, chunks before metadata.

    Returns all entries, and the units of variables of times.
    """
    need("zarr", "array")
    from hyperplane.storage import zarr_writing

    template, target = zarr_writing.build_template(obj), commits.target
    writer = make_writer(target, staged, template.documents, published)
    put_all = partial(commits.store_files.map_concurrently, lambda item: writer.put(*item))
    parts = put_all(list(template.chunks.items()))
    for written in compute_with_progress(
        zarr_writing.build_tasks(template, writer), f"saving {target.url}"
    ):
        parts += written
    parts += put_all(list(template.documents.items()))
    return parts, template.time_units


def make_writer(
    target: Target, staged: str, documents: Mapping[str, bytes], published: PublishedFiles
) -> ChunkWriter:
    """Return the writer of the files of a Zarr store with these metadata.

    Raises
    ------
    OutputExists
        If the metadata differ from protected ones; nothing is computed or written then.
    """
    from hyperplane.storage.zarr_writing import ChunkWriter

    protected_url = target.url if published.protected else ""
    writer = ChunkWriter(target.store, staged, documents, published.existing, protected_url)
    for name, data in documents.items():
        writer.make_entry(name, data)
    return writer


def _check_unchanged(commits: CommitProtocol, base: PublishedState) -> None:
    """Check that the published files that were compared are still published.

    Raises
    ------
    OutputConflict
        If another process has saved meanwhile.
    """
    # Versions alone do not suffice: after two saves the file system may reuse the inode in them.
    if commits.read_state() != base:
        raise conflict_error(commits.target)


def load_array(commits: CommitProtocol, manifest: Manifest) -> Any:
    """Return the saved object lazily; reading fails if its files have changed since."""
    target, folder = commits.target, commits.data_folder(manifest)
    need("zarr", "array")
    options: dict[str, Any] = {}
    if all(part.sha256 for part in manifest.parts):
        import zarr

        from hyperplane.storage.zarr_store import VerifiedZarrStore

        folders = list(dict.fromkeys((folder, target.path)))
        store: Any = VerifiedZarrStore(target.store, folders, manifest.parts)
        if manifest.kind == "array":
            import dask.array as da

            return da.from_zarr(zarr.open_array(store, mode="r"))
    else:  # written by another program
        store = Location(target.store, folder).address
        if not target.store.local:
            options["storage_options"] = dict(target.store.options)
    need("xarray", "array")
    time_units = manifest.details.get(_TIME_UNITS_KEY)
    if time_units:
        from xarray.coders import CFDatetimeCoder

        options["decode_times"] = {
            name: CFDatetimeCoder(time_unit=unit) for name, unit in time_units.items()
        }
    try:
        return _open_group(store, manifest.kind, options)
    except FileNotFoundError as error:
        problem = "contains Zarr files but is not a Zarr group; load the group or array inside it"
        raise StorageError(target.url, problem) from error
    except _METADATA_ERRORS as error:
        problem = "is damaged, or has no dimension names; open such a group with zarr.open_group"
        raise ReadError(target.url, f"{problem} ({describe_error(error)})") from error


def _open_group(store: Any, kind: str, options: Mapping[str, Any]) -> Any:
    """Return a Zarr group as an xarray object, or an array outside of groups as a Dask array."""
    import dask.array as da
    import xarray
    from zarr.errors import ContainsArrayError

    if kind == "dataarray":
        return xarray.open_dataarray(store, engine="zarr", chunks={}, **options)
    try:
        return xarray.open_zarr(store, **options)
    except (ContainsArrayError, FileNotFoundError) as error:
        try:
            return da.from_zarr(store, **options)
        except FileNotFoundError:
            raise error from None
