"""From what a caller names to files: paths, globs, folders and URLs."""

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

from hyperplane.errors import Fault, RequestError, check
from hyperplane.stores.links import BROKEN, ResolvedLinks, listing_thread
from hyperplane.stores.locations import File, Folder, Location, Store
from hyperplane.stores.reachability import StoreUnreachable, monitor_open, monitor_request
from hyperplane.stores.redaction import describe_error, describe_url
from hyperplane.units import is_iterable

#: Questions to a store at once.
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
_NO_FILES = "a path, glob or URL where there are files; none were found"
_CHECK_URL = "check the URL and the options of its store"

#: Statuses of HTTP for what is not there.
_MISSING_STATUSES = (404, 410)

#: Folders of files that the kernel makes up.
_KERNEL_FOLDERS = ("/proc", "/sys")

_Result = TypeVar("_Result")
_Entries = list[File | Folder | Fault]
_Finder = Callable[[Any, Location], _Entries]


def natural_sort_key(path: str) -> list[Any]:
    """The key by which ``part-2`` comes before ``part-10``."""
    parts = re.split(r"(\d+)", path)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def is_glob(path: str) -> bool:
    """Whether a path or URL, or one in a chain, has the marks of a glob; over HTTP a query is none.

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
    """All files of paths, globs, folders and URLs, each once, in natural order within each.

    Parameters
    ----------
    urls : str, path or iterable of these
        A folder stands for all files in it and in its folders. Files and folders whose names
        begin with ``_`` or ``.`` are left out, unless they are named so. A name that is there is
        no glob, whatever marks it has. On this machine's disk links are followed: a link is a
        file or a folder of its own, even if what it leads to is found as well. Only a link to a
        folder in which it is itself is left out of folders and of ``**``.
    options : mapping, optional
        For the file system.
    sized : bool
        Whether files are refused whose length the store does not say.

    Returns
    -------
    list of File
        At least one.

    Raises
    ------
    RequestError
        With everything that is not there or cannot be opened, and links that lead nowhere.
    """
    files: list[File] = _find_all(urls, options, _list_files)
    lacking = [number for number, file in enumerate(files) if not file.sized]
    # A list of a folder may say less of a file than the store does when it is asked for it.
    again = _map_threads(_refresh_info, [files[number] for number in lacking])
    for number, file in zip(lacking, again, strict=True):
        files[number] = file
    if sized:
        allowed, advice = "a file whose store says how long it is", "copy it to another store"
        check(_url_fault(file.url, allowed, advice) for file in again if not file.sized)
    return files


def find_entries(urls: Any, options: Mapping[str, Any] | None = None) -> list[File | Folder]:
    """What paths, globs and URLs name, in natural order within each; folders stay folders.

    Raises
    ------
    RequestError
        With everything that is not there or cannot be opened, and links that lead nowhere.
    """
    return _find_all(urls, options, _match_url)


def resolve_location(url: str, options: Mapping[str, Any] | None = None) -> Location:
    """Where a path or URL leads, whether something is there or not.

    Raises
    ------
    RequestError
        When fsspec cannot open it, or its store cannot be reached.
    """
    place = _open_location(url, dict(options or {}), {})
    if isinstance(place, Fault):
        raise RequestError([place])
    return place


def _find_all(urls: Any, options: Any, look: _Finder) -> list[Any]:
    """What ``look`` finds for each URL, all asked at once; or everything that is wrong."""
    if not isinstance(options, Mapping | None):
        asked = f"a {type(options).__name__}"  # not shown: it may be a secret
        raise RequestError([Fault("storage_options", asked, "a mapping for fsspec")])
    several = [urls] if isinstance(urls, str | os.PathLike) else urls
    if not is_iterable(several) or isinstance(several, Mapping | bytes):
        raise RequestError([_url_fault(urls, _ALLOWED)])
    try:
        several = list(several)
    except TypeError:  # an array of no dimension says that it can be gone through
        raise RequestError([_url_fault(urls, _ALLOWED)]) from None
    if not several:
        raise RequestError([Fault("urls", "[]", f"{_ALLOWED}; here is none")])
    stores: dict[Any, Store] = {}
    opened = [(url, _open_location(url, dict(options or {}), stores)) for url in several]

    def answer(one: tuple[Any, Location | Fault]) -> _Entries:
        url, place = one
        if isinstance(place, Fault):
            return [place]
        try:
            with monitor_request(place.store, os.fspath(url)):
                return look(url, place)
        except Exception as error:  # noqa: BLE001 - each file system raises its own
            return [_unreadable_fault(url, error, options)]

    found = [one for answers in _map_threads(answer, opened) for one in answers]
    check(dict.fromkeys(one for one in found if isinstance(one, Fault)))
    places = [one for one in found if not isinstance(one, Fault)]
    return list({(id(place.store), place.path): place for place in places}.values())


def _map_threads(function: Callable[[Any], _Result], given: Sequence[Any]) -> list[_Result]:
    """What a function makes of each; every thread takes one in so many."""
    if len(given) < 2:  # in this thread, which Ctrl-C interrupts
        return list(map(function, given))
    shares = [given[first::MAX_THREADS] for first in range(min(MAX_THREADS, len(given)))]
    stopped = threading.Event()

    def work(share: Sequence[Any]) -> list[_Result]:
        listing_thread.stopped = stopped
        return list(map(function, share))

    with ThreadPoolExecutor(MAX_THREADS) as pool:
        try:
            done = list(pool.map(work, shares))
        except BaseException:  # the threads would go on to the end of the disk
            stopped.set()
            raise
    return [done[place % MAX_THREADS][place // MAX_THREADS] for place in range(len(given))]


def _url_fault(url: object, allowed: str, advice: str = "") -> Fault:
    return Fault("urls", describe_url(url), allowed, advice)


def _unreadable_fault(url: Any, error: Exception, options: Mapping[str, Any] | None) -> Fault:
    return _url_fault(
        url, f"a place that can be read ({describe_error(error, options, url)})", _CHECK_URL
    )


def _open_location(
    url: Any, options: Mapping[str, Any], stores: dict[Any, Store]
) -> Location | Fault:
    """Where a URL leads; those on one store share it, so that it is made and sent only once."""
    if not isinstance(url, str | os.PathLike) or not str(os.fspath(url)).strip():
        return _url_fault(url, _ALLOWED)
    text = os.fspath(url)
    try:
        with monitor_open(text, options):
            system, path = fsspec.url_to_fs(text, **options)
    except StoreUnreachable as error:
        return _unreadable_fault(url, error, options)
    except ImportError as error:
        return _url_fault(
            url, f"a URL that fsspec can open ({describe_error(error, options, url)})"
        )
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


def _match_url(url: Any, place: Location) -> _Entries:
    """What one URL names."""
    system, path = place.store.system, place.path
    glob = is_glob(path)
    try:
        entries = [system.info(path)]  # first: a name that is there is no glob
    except Exception as error:
        if place.store.local and Path(path).is_symlink():
            entries = [{"name": path, "type": BROKEN, "destination": str(Path(path).readlink())}]
        elif glob:
            entries = _glob(_system_with_links(place.store, recursive="**" in path), path)
        elif isinstance(error, FileNotFoundError):
            cause = error.__cause__
            if _is_http_error(cause, place.store):
                raise cause from None
            entries = []
        else:
            raise
    found = [made for entry in entries for made in _parse_entry(place.store, entry)]
    return _sort_entries(found) or [_url_fault(url, _NO_FILES, _suggest_names(system, path))]


def _is_http_error(cause: BaseException | None, store: Store) -> TypeGuard[BaseException]:
    """Whether fsspec says that a file is missing where the server said something else."""
    if store.protocol not in ("http", "https") or cause is None:
        return False
    return (
        not isinstance(cause, FileNotFoundError)
        and getattr(cause, "status", 0) not in _MISSING_STATUSES
    )


def _is_system_folder(folder: str) -> bool:
    """Whether a folder is the whole disk or of the kernel, also as ``/tmp/..`` or behind a link."""
    try:
        found = Path(folder).resolve()
    except (OSError, RuntimeError):  # links in a circle are a fault of their own
        return False
    made_up = any(str(parent) in _KERNEL_FOLDERS for parent in (found, *found.parents))
    return made_up or str(found) in ("/", "/dev")


def _list_files(url: Any, place: Location) -> _Entries:
    """The files of what one URL names."""
    whole = "a folder with the files, not the whole disk, nor /proc, /sys or /dev"
    begin = place.path.partition("**")[0]
    if (
        place.store.local
        and begin != place.path
        and _is_system_folder(begin.rpartition("/")[0] or "/")
    ):
        return [_url_fault(url, whole, "name the folder")]  # before all of it is listed
    matched = _match_url(url, place)
    folders = [one for one in matched if isinstance(one, Folder) and one.store.local]
    if any(_is_system_folder(one.path) for one in folders):
        return [_url_fault(url, whole, "name the folder")]
    found: _Entries = []
    for one in matched:
        if isinstance(one, Folder):
            inside = (
                _system_with_links(one.store, recursive=True).find(one.path, detail=True).values()
            )
            visible = [
                entry for entry in inside if not _is_hidden(_relative_path(entry["name"], one.path))
            ]
            made = [made for entry in visible for made in _parse_entry(one.store, entry)]
            found += [inner for inner in made if not isinstance(inner, Folder)]
        else:
            found.append(one)
    return _sort_entries(found) or [_url_fault(url, _NO_FILES)]


def _system_with_links(store: Store, *, recursive: bool) -> Any:
    """The file system of a store, for lists in which links are what they lead to."""
    return ResolvedLinks(recursive) if store.local else store.system


def _glob(system: Any, path: str) -> list[Any]:
    """What a glob matches; not what is hidden, unless the glob names such."""
    entries = list(system.glob(path, detail=True).values())
    fixed = re.split(r"[*?\[]", path, maxsplit=1)[0].rpartition("/")[0]
    if _is_hidden(_relative_path(path, fixed)):
        return entries
    return [entry for entry in entries if not _is_hidden(_relative_path(entry["name"], fixed))]


def _relative_path(path: str, folder: str) -> str:
    """A path from a folder on; its name alone if it is elsewhere."""
    path, root = path.rstrip("/"), f"{folder.rstrip('/')}/" if folder else ""
    return path.removeprefix(root) if path.startswith(root) else path.rpartition("/")[2]


def _is_hidden(path: str) -> bool:
    """Whether a file is a mark or a leftover of what wrote the data, or in a folder of such."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _parse_entry(store: Store, entry: Mapping[str, Any]) -> Iterator[File | Folder | Fault]:
    """The file or folder that a store tells of; what is neither makes none."""
    path, kind, size = entry["name"], entry["type"], entry.get("size")
    if kind == "directory":
        yield Folder(store, path)
    elif kind == "file":
        stamp = next((f"{name}={entry[name]}" for name in _VERSION_KEYS if entry.get(name)), "")
        yield File(store, path, int(size or 0), stamp, size is not None)
    elif kind == BROKEN:
        leads = f"a link to what can be read; it leads to {entry['destination']!r}"
        yield _url_fault(path, leads, "mend the link or remove it")


def _sort_entries(found: _Entries) -> _Entries:
    """Places in natural order, after what is wrong."""
    return sorted(
        found, key=lambda one: [] if isinstance(one, Fault) else natural_sort_key(one.path)
    )


def _refresh_info(file: File) -> File:
    try:
        found = list(_parse_entry(file.store, file.store.system.info(file.path)))
    except Exception:  # noqa: BLE001 - each file system raises its own
        return file
    return found[0] if found and isinstance(found[0], File) else file


def _suggest_names(system: Any, path: str) -> str:
    """Names files beside the one that is missing."""
    if is_glob(path):
        return "check the folder and the pattern"
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        beside = [entry.rstrip("/").rpartition("/")[2] for entry in system.ls(folder, detail=False)]
    except Exception:  # noqa: BLE001 - each file system raises its own
        return ""
    close = difflib.get_close_matches(name, [one for one in beside if one != name], n=3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
