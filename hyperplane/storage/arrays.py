"""Save Dask arrays and xarray objects as Zarr, and load them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hyperplane.core.errors import ReadError, StorageError
from hyperplane.core.optional import need
from hyperplane.core.progress import compute_with_progress
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.redaction import describe_error
from hyperplane.storage.commit_protocol import CommitProtocol, commit_protocol_for
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.part_saving import staging_folder, verify_listing
from hyperplane.storage.published_state import PublishedState, conflict_error
from hyperplane.storage.replaced_files import check_replaceable
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.single_file import exists_error

#: Exceptions that Zarr and xarray raise for invalid metadata.
_METADATA_ERRORS = (AttributeError, KeyError, TypeError, ValueError)
#: Key of the units of variables of times in the details of a manifest; xarray stores no units.
_TIME_UNITS_KEY = "time_units"


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
    target = request.target
    commits = commit_protocol_for(target)
    base = commits.read_state()
    check_replaceable(target.url, base.manifest)
    commits.finish_interrupted(base)
    old = base.manifest
    if old is not None and request.mode == "skip":
        return SaveResult(target.url, len(old.parts), None, old.size)
    with staging_folder(commits) as staged:
        protected = old is not None and request.mode == "error"
        existing = _find_reusable_parts(commits, old, check_sizes=not protected)
        parts, time_units = _write_files(obj, commits, staged, existing, protected=protected)
        details = {_TIME_UNITS_KEY: dict(time_units)} if time_units else {}
        manifest = Manifest("zarr", _array_kind(obj), parts, details=details)
        new = [part for part in parts if existing.get(part.name) != part]
        same = old is not None and (old.kind, old.parts) == (manifest.kind, parts)
        if same and not new:
            return SaveResult(target.url, len(parts), None, manifest.size)
        if protected:
            raise exists_error(request)
        verify_listing(commits.store_files, staged, new)
        if len(new) < len(parts):
            _check_unchanged(commits, base)
        commits.publish(manifest, staged, base)
        return SaveResult(
            target.url, len(parts), None, manifest.size, written=len(new), published=True
        )


def _array_kind(obj: Any) -> str:
    """Return the kind of object for the manifest."""
    if type(obj).__module__.startswith("dask"):
        return "array"
    return "dataset" if type(obj).__name__ == "Dataset" else "dataarray"


def _find_reusable_parts(
    commits: CommitProtocol, old: Manifest | None, *, check_sizes: bool
) -> dict[str, ManifestEntry]:
    """Return the published files by name; with ``check_sizes`` only those of unchanged size."""
    if old is None:
        return {}
    if not check_sizes:
        return {part.name: part for part in old.parts}
    listing = commits.store_files.list_files(commits.target.path)
    sizes = {name: int(info["size"] or 0) for name, info in listing.items()}
    return {part.name: part for part in old.parts if sizes.get(part.name) == part.size}


def _write_files(
    obj: Any,
    commits: CommitProtocol,
    staged: str,
    existing: dict[str, ManifestEntry],
    *,
    protected: bool,
) -> tuple[tuple[ManifestEntry, ...], Mapping[str, str]]:
    """Write new files to the staging folder, chunks before metadata.

    Returns all entries, and the units of variables of times.

    If ``protected``, a file that differs from the published one is an error.
    """
    need("zarr", "array")
    from hyperplane.storage import zarr_writing

    template, target = zarr_writing.build_template(obj), commits.target
    protected_url = target.url if protected else ""
    writer = zarr_writing.ChunkWriter(
        target.store, staged, template.documents, existing, protected_url
    )
    for name, data in template.documents.items():
        writer.make_entry(name, data)  # raises before anything is computed
    put_all = partial(commits.store_files.map_concurrently, lambda item: writer.put(*item))
    parts = put_all(list(template.chunks.items()))
    for written in compute_with_progress(
        zarr_writing.build_tasks(template, writer), f"saving {target.url}"
    ):
        parts += written
    parts += put_all(list(template.documents.items()))
    return tuple(sorted(parts, key=lambda part: part.name)), template.time_units


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
