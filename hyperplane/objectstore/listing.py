"""Find the files that paths, globs, folders, and URLs name."""

from __future__ import annotations

import difflib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.units import is_iterable
from hyperplane.objectstore.links import BROKEN, ResolvedLinks, listing_thread
from hyperplane.objectstore.locations import File, Folder, Location, Store
from hyperplane.objectstore.missing_packages import advise_installation
from hyperplane.objectstore.page_checks import check_pages
from hyperplane.objectstore.reachability import StoreUnreachable, monitor_open, monitor_request
from hyperplane.objectstore.redaction import describe_error, describe_url

#: Concurrent requests to stores.
MAX_THREADS = 16
_VERSION_KEYS = (
    "ETag",
    "etag",
    "md5Hash",
    "generation",
    "mtime",
    "LastModified",
    "updated",
    "created",
)
_ALLOWED = "a path, glob or URL, or a list of them"
_NO_FILES = "a path, glob or URL that matches at least one file; none were found"
_CHECK_URL = "check the URL and the options of its store"

#: HTTP statuses of missing files.
_MISSING_STATUSES = (404, 410)

#: Virtual file systems of the kernel.
_KERNEL_FOLDERS = ("/proc", "/sys")

_Result = TypeVar("_Result")
_Entries = list[File | Folder | Fault]
_Finder = Callable[[Any, Location], _Entries]


def natural_sort_key(path: str) -> list[Any]:
    """Return a sort key by which ``part-2`` comes before ``part-10``."""
    parts = re.split(r"(\d+)", path)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def is_glob(path: str) -> bool:
    """Return whether a path, or any URL of a chain, is a glob.

    In HTTP URLs ``?`` begins a query and is no wildcard.

    Examples
    --------
    >>> is_glob("data/day-?.csv"), is_glob("https://host/a.csv?signature=b")
    (True, False)
    >>> is_glob("simplecache::https://host/a.zarr?signature=b")
    False
    """
    return any(
        mark in link
        for link in path.split("::")
        for mark in ("*[" if link.startswith(("http://", "https://")) else "*?[")
    )


def find_files(
    urls: Any, options: Mapping[str, Any] | None = None, *, sized: bool = True
) -> list[File]:
    """List all files of paths, globs, folders, and URLs, each once, in natural order.

    Parameters
    ----------
    urls : str, path or iterable of these
        A folder means all files in it and in its subfolders. Files and folders whose names begin
        with ``_`` or ``.`` are skipped unless a URL names them. The name of an existing file or
        folder is never a glob. On local disk links are followed, and a link and its target are two
        files. A link to a folder that contains the link is skipped in folders and ``**``.
    options : mapping, optional
        Options of the file system.
    sized : bool
        If true, a file of unknown length is an error.

    Returns
    -------
    list of File
        At least one.

    Raises
    ------
    RequestError
        With every name that does not exist or cannot be opened, and every dangling link.
    """
    files: list[File] = _find_all(urls, options, _list_files)
    unsized = [number for number, file in enumerate(files) if not file.sized]
    # A folder listing may lack the length that a request for the file itself returns.
    refreshed = _map_threads(_refresh_info, [files[number] for number in unsized])
    for number, file in zip(unsized, refreshed, strict=True):
        files[number] = file
    if sized:
        allowed, advice = "a file whose server sends its length", "copy it to another store"
        check(_url_fault(file.url, allowed, advice) for file in refreshed if not file.sized)
    return files


def find_entries(urls: Any, options: Mapping[str, Any] | None = None) -> list[File | Folder]:
    """List the files and folders that paths, globs, and URLs name, in natural order.

    Raises
    ------
    RequestError
        With every name that does not exist or cannot be opened, and every dangling link.
    """
    return _find_all(urls, options, _match_url)


def resolve_location(url: str, options: Mapping[str, Any] | None = None) -> Location:
    """Return the location of a path or URL, whether it exists or not.

    Raises
    ------
    RequestError
        If fsspec cannot open the URL, or its store cannot be reached.
    """
    location = _open_location(url, dict(options or {}), {})
    if isinstance(location, Fault):
        raise RequestError([location])
    return location


def _find_all(urls: Any, options: Any, find: _Finder) -> list[Any]:
    """Call ``find`` for all URLs concurrently; return their entries, or raise all faults."""
    if not isinstance(options, Mapping | None):
        type_name = f"a {type(options).__name__}"  # not its value, which may be a secret
        raise RequestError([Fault("storage_options", type_name, "a mapping for fsspec")])
    names = [urls] if isinstance(urls, str | os.PathLike) else urls
    if not is_iterable(names) or isinstance(names, Mapping | bytes):
        raise RequestError([_url_fault(urls, _ALLOWED)])
    try:
        names = list(names)
    except TypeError:  # the iterator of a zero-dimensional Dask array fails
        raise RequestError([_url_fault(urls, _ALLOWED)]) from None
    if not names:
        raise RequestError([Fault("urls", "[]", f"{_ALLOWED}; the list is empty")])
    stores: dict[Any, Store] = {}
    opened = [(url, _open_location(url, dict(options or {}), stores)) for url in names]

    def find_opened(pair: tuple[Any, Location | Fault]) -> _Entries:
        url, location = pair
        if isinstance(location, Fault):
            return [location]
        try:
            with monitor_request(location.store, os.fspath(url)), check_pages(location.store):
                return find(url, location)
        except Exception as error:  # noqa: BLE001 - each file system raises its own
            return [unreadable_fault(url, error, options)]

    entries = [entry for listed in _map_threads(find_opened, opened) for entry in listed]
    check(dict.fromkeys(entry for entry in entries if isinstance(entry, Fault)))
    locations = [entry for entry in entries if not isinstance(entry, Fault)]
    return list({(id(location.store), location.path): location for location in locations}.values())


def _map_threads(function: Callable[[Any], _Result], items: Sequence[Any]) -> list[_Result]:
    """Apply a function to each item in up to ``MAX_THREADS`` threads; results keep the order."""
    if len(items) < 2:  # the calling thread can be interrupted by Ctrl-C
        return list(map(function, items))
    shares = [items[first::MAX_THREADS] for first in range(min(MAX_THREADS, len(items)))]
    stopped = threading.Event()

    def work(share: Sequence[Any]) -> list[_Result]:
        listing_thread.stopped = stopped
        return list(map(function, share))

    with ThreadPoolExecutor(MAX_THREADS) as pool:
        try:
            results = list(pool.map(work, shares))
        except BaseException:  # such as Ctrl-C; without this the threads go on listing
            stopped.set()
            raise
    return [results[index % MAX_THREADS][index // MAX_THREADS] for index in range(len(items))]


def _url_fault(url: object, allowed: str, advice: str = "") -> Fault:
    return Fault("urls", describe_url(url), allowed, advice)


def unreadable_fault(url: Any, error: Exception, options: Mapping[str, Any] | None) -> Fault:
    """Return the fault of a URL whose store has raised an error."""
    return _url_fault(url, f"a readable URL ({describe_error(error, options, url)})", _CHECK_URL)


def _open_location(
    url: Any, options: Mapping[str, Any], stores: dict[Any, Store]
) -> Location | Fault:
    """Return the location of a URL. URLs on the same file system share one ``Store`` object."""
    if not isinstance(url, str | os.PathLike) or not str(os.fspath(url)).strip():
        return _url_fault(url, _ALLOWED)
    text = os.fspath(url)
    try:
        with monitor_open(text, options):
            system, path = fsspec.url_to_fs(text, **options)
    except StoreUnreachable as error:
        return unreadable_fault(url, error, options)
    except ImportError as error:
        allowed = f"a URL that fsspec can open ({describe_error(error, options, url)})"
        return _url_fault(url, allowed, advise_installation(error, url))
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        return _url_fault(
            url, f"a URL that fsspec can open ({describe_error(error, options, url)})", _CHECK_URL
        )
    if system not in stores:
        if isinstance(system, LocalFileSystem):
            store = Store("file", "file:///", options)
        else:
            protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
            store = Store(protocol, text, options)
        store.__dict__["system"] = system
        stores[system] = store
    return Location(stores[system], path)


def _match_url(url: Any, location: Location) -> _Entries:
    """List the files and folders that one URL names."""
    system, path = location.store.system, location.path
    glob = is_glob(path)
    try:
        entries = [system.info(path)]  # an existing name is not a glob
    except Exception as error:
        if location.store.local and Path(path).is_symlink():
            entries = [{"name": path, "type": BROKEN, "destination": str(Path(path).readlink())}]
        elif glob:
            entries = _glob(_system_with_links(location.store, recursive="**" in path), path)
        elif isinstance(error, FileNotFoundError):
            cause = error.__cause__
            if _is_http_error(cause, location.store):
                raise cause from None
            entries = []
        else:
            raise
    results = [parsed for entry in entries for parsed in _parse_entry(location.store, entry)]
    return _sort_entries(results) or [_url_fault(url, _NO_FILES, _suggest_names(system, path))]


def _is_http_error(cause: BaseException | None, store: Store) -> TypeGuard[BaseException]:
    """Return whether the cause of a FileNotFoundError of fsspec is another error of the server."""
    if store.protocol not in ("http", "https") or cause is None:
        return False
    return (
        not isinstance(cause, FileNotFoundError)
        and getattr(cause, "status", 0) not in _MISSING_STATUSES
    )


def is_system_folder(folder: str) -> bool:
    """Return whether a folder is the disk's root or the kernel's, also through ``..`` or links."""
    try:
        resolved = Path(folder).resolve()
    except (OSError, RuntimeError):  # circular links are reported separately
        return False
    is_virtual = any(str(parent) in _KERNEL_FOLDERS for parent in (resolved, *resolved.parents))
    return is_virtual or str(resolved) in ("/", "/dev")


def _list_files(url: Any, location: Location) -> _Entries:
    """List the files that one URL names, including those in folders."""
    allowed = "a folder with the files, not the whole disk, nor /proc, /sys or /dev"
    begin = location.path.partition("**")[0]
    if (
        location.store.local
        and begin != location.path
        and is_system_folder(begin.rpartition("/")[0] or "/")
    ):
        return [_url_fault(url, allowed, "name the folder")]  # before the glob lists the whole disk
    matches = _match_url(url, location)
    folders = [match for match in matches if isinstance(match, Folder) and match.store.local]
    if any(is_system_folder(match.path) for match in folders):
        return [_url_fault(url, allowed, "name the folder")]
    results: _Entries = []
    for match in matches:
        if isinstance(match, Folder):
            inside = (
                _system_with_links(match.store, recursive=True)
                .find(match.path, detail=True)
                .values()
            )
            visible = [
                entry
                for entry in inside
                if not is_hidden(_relative_path(entry["name"], match.path))
            ]
            parsed = [parsed for entry in visible for parsed in _parse_entry(match.store, entry)]
            results += [inner for inner in parsed if not isinstance(inner, Folder)]
        else:
            results.append(match)
    return _sort_entries(results) or [_url_fault(url, _NO_FILES)]


def _system_with_links(store: Store, *, recursive: bool) -> Any:
    """Return the file system of a store, with resolved links on local disk."""
    return ResolvedLinks(recursive) if store.local else store.system


def _glob(system: Any, path: str) -> list[Any]:
    """Return the entries that a glob matches, hidden ones only if the glob names them."""
    entries = list(system.glob(path, detail=True).values())
    fixed = re.split(r"[*?\[]", path, maxsplit=1)[0].rpartition("/")[0]
    if is_hidden(_relative_path(path, fixed)):
        return entries
    return [entry for entry in entries if not is_hidden(_relative_path(entry["name"], fixed))]


def _relative_path(path: str, folder: str) -> str:
    """Return a path relative to a folder, or its last part if it is not in the folder."""
    path, root = path.rstrip("/"), f"{folder.rstrip('/')}/" if folder else ""
    return path.removeprefix(root) if path.startswith(root) else path.rpartition("/")[2]


def is_hidden(path: str) -> bool:
    """Return whether any part of a path begins with ``_`` or ``.``, as markers of writers do."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _parse_entry(store: Store, entry: Mapping[str, Any]) -> Iterator[File | Folder | Fault]:
    """Yield the file, folder, or fault of a listing entry; nothing for others, such as sockets."""
    path, kind, size = entry["name"], entry["type"], entry.get("size")
    if kind == "directory":
        yield Folder(store, path)
    elif kind == "file":
        stamp = next((f"{name}={entry[name]}" for name in _VERSION_KEYS if entry.get(name)), "")
        yield File(store, path, int(size or 0), stamp, size is not None)
    elif kind == BROKEN:
        allowed = f"a link to an existing file; it leads to {entry['destination']!r}"
        yield _url_fault(path, allowed, "fix or remove the link")


def _sort_entries(entries: _Entries) -> _Entries:
    """Return the faults, then the entries in natural order of their paths."""
    return sorted(
        entries,
        key=lambda entry: [] if isinstance(entry, Fault) else natural_sort_key(entry.path),
    )


def _refresh_info(file: File) -> File:
    """Return a file with the length that a request for the file itself returns."""
    try:
        entries = list(_parse_entry(file.store, file.store.system.info(file.path)))
    except Exception:  # noqa: BLE001 - each file system raises its own
        return file
    return entries[0] if entries and isinstance(entries[0], File) else file


def has_changed(file: File) -> bool:
    """Return whether a file has another size or version than when it was listed."""
    file.store.system.invalidate_cache()
    new = _refresh_info(file)
    is_resized = file.sized and new.sized and new.size != file.size
    # The answer about one file may have other versions than a listing, such as only a time.
    is_comparable = file.stamp.partition("=")[0] == new.stamp.partition("=")[0]
    return is_resized or (is_comparable and new.stamp != file.stamp)


def _suggest_names(system: Any, path: str) -> str:
    """Return advice with similar names in the folder of a missing file."""
    if is_glob(path):
        return "check the folder and the pattern"
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        siblings = [
            entry.rstrip("/").rpartition("/")[2] for entry in system.ls(folder, detail=False)
        ]
    except Exception:  # noqa: BLE001 - each file system raises its own
        return ""
    close = difflib.get_close_matches(name, [other for other in siblings if other != name], n=3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
