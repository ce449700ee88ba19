"""From what a caller names to files: paths, globs, folders and URLs."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from hyperplane.errors import Fault, RequestError, check
from hyperplane.stores.places import File, Folder, Place, Store
from hyperplane.stores.secrets import said, shown

#: Questions to a store at once.
AT_ONCE = 16
_STAMPS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "updated", "created")
_ALLOWED = "a path, glob or URL, or a list of them"
_NOTHING = "a path, glob or URL where there are files; none were found"
_CHECK = "check the URL and the options of its store"

_One = TypeVar("_One")
_Named = TypeVar("_Named", bound=Place)
_Look = Callable[[Any, Place], Sequence[Place] | Fault]


def natural(path: str) -> list[Any]:
    """The key by which ``part-2`` comes before ``part-10``."""
    parts = re.split(r"(\d+)", path)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def is_glob(path: str) -> bool:
    """Whether a path or URL has the marks of a glob; over HTTP a query is none.

    Examples
    --------
    >>> is_glob("data/day-?.csv"), is_glob("https://host/a.csv?signature=b")
    (True, False)
    """
    marks = "*[" if path.startswith(("http://", "https://")) else "*?["
    return any(mark in path for mark in marks)


def find(urls: Any, options: Mapping[str, Any] | None = None, *, sized: bool = True) -> list[File]:
    """All files of paths, globs, folders and URLs, each once, in natural order within each.

    Parameters
    ----------
    urls : str, path or iterable of these
        A folder stands for all files in it and in its folders. Files and folders whose names
        begin with ``_`` or ``.`` are left out, unless they are named so.
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
        With everything that is not there or cannot be opened.
    """
    files: list[File] = _asked(urls, options, _files)
    lacking = [number for number, file in enumerate(files) if not file.sized]
    # A list of a folder may say less of a file than the store does when it is asked for it.
    again = _at_once(_asked_again, [files[number] for number in lacking])
    for number, file in zip(lacking, again, strict=True):
        files[number] = file
    if sized:
        allowed, advice = "a file whose store says how long it is", "copy it to another store"
        check(_fault(file.url, allowed, advice) for file in again if not file.sized)
    return files


def named(urls: Any, options: Mapping[str, Any] | None = None) -> list[File | Folder]:
    """What paths, globs and URLs name, in natural order within each; folders stay folders.

    Raises
    ------
    RequestError
        With everything that is not there or cannot be opened.
    """
    return _asked(urls, options, _matched)


def place_of(url: str, options: Mapping[str, Any] | None = None) -> Place:
    """Where a path or URL leads, whether something is there or not.

    Raises
    ------
    RequestError
        When fsspec cannot open it.
    """
    place = _opened(url, dict(options or {}), {})
    if isinstance(place, Fault):
        raise RequestError([place])
    return place


def _asked(urls: Any, options: Any, look: _Look) -> list[Any]:
    """What ``look`` finds for each URL, all asked at once; or everything that is wrong."""
    if not isinstance(options, Mapping | None):
        asked = f"a {type(options).__name__}"  # not shown: it may be a secret
        raise RequestError([Fault("storage_options", asked, "a mapping for fsspec")])
    given = [urls] if isinstance(urls, str | os.PathLike) else urls
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        raise RequestError([_fault(urls, _ALLOWED)])
    given = list(given)
    if not given:
        raise RequestError([_fault(urls, f"{_ALLOWED}; here is none")])
    stores: dict[Any, Store] = {}
    opened = [(url, _opened(url, dict(options or {}), stores)) for url in given]

    def answer(one: tuple[Any, Place | Fault]) -> Sequence[Place] | Fault:
        url, place = one
        if isinstance(place, Fault):
            return place
        try:
            return look(url, place)
        except Exception as error:  # noqa: BLE001 - each file system raises its own
            why = said(error, options, url)
            return _fault(url, f"a place that can be read ({why})", _CHECK)

    answers = _at_once(answer, opened)
    check(answer for answer in answers if isinstance(answer, Fault))
    found = [place for answer in answers if not isinstance(answer, Fault) for place in answer]
    return list({(id(place.store), place.path): place for place in found}.values())


def _at_once(function: Callable[[Any], _One], given: Sequence[Any]) -> list[_One]:
    """What a function makes of each; every thread takes one in so many."""
    shares = [given[first::AT_ONCE] for first in range(min(AT_ONCE, len(given)))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(lambda share: list(map(function, share)), shares))
    return [done[place % AT_ONCE][place // AT_ONCE] for place in range(len(given))]


def _fault(url: object, allowed: str, advice: str = "") -> Fault:
    asked = shown(os.fspath(url)) if isinstance(url, str | os.PathLike) else url
    return Fault("urls", repr(asked)[:200], allowed, advice)


def _opened(url: Any, options: Mapping[str, Any], stores: dict[Any, Store]) -> Place | Fault:
    """Where a URL leads; those on one store share it, so that it is made and sent only once."""
    if not isinstance(url, str | os.PathLike) or not str(os.fspath(url)).strip():
        return _fault(url, _ALLOWED)
    text = os.fspath(url)
    try:
        system, path = fsspec.url_to_fs(text, **options)
    except ImportError as error:
        return _fault(url, f"a URL that fsspec can open ({said(error, options, url)})")
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        return _fault(url, f"a URL that fsspec can open ({said(error, options, url)})", _CHECK)
    if system not in stores:
        if isinstance(system, LocalFileSystem):
            store = Store("file", "file:///", options)
        else:
            protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
            store = Store(protocol, text, options)
        store.__dict__["system"] = system
        stores[system] = store
    return Place(stores[system], path)


def _matched(url: Any, place: Place) -> list[File | Folder] | Fault:
    """What one URL names."""
    system, path = place.store.system, place.path
    if is_glob(path) and not (place.store.local and system.exists(path)):
        entries = _matches(system, path)
    else:
        try:
            entries = [system.info(path)]
        except FileNotFoundError:
            entries = []
    found = [made for entry in entries for made in _made(place.store, entry)]
    return _sorted(found) or _fault(url, _NOTHING, _advice(system, path))


def _files(url: Any, place: Place) -> list[File] | Fault:
    """The files of what one URL names."""
    found = _matched(url, place)
    if isinstance(found, Fault):
        return found
    files = [one for one in found if isinstance(one, File)]
    for folder in found:
        if isinstance(folder, Folder):
            inside = place.store.system.find(folder.path, detail=True).values()
            visible = [one for one in inside if not _hidden(_below(one["name"], folder.path))]
            made = [one for entry in visible for one in _made(place.store, entry)]
            files += [one for one in made if isinstance(one, File)]
    return _sorted(files) or _fault(url, _NOTHING)


def _matches(system: Any, path: str) -> list[Any]:
    """What a glob matches; not what is hidden, unless the glob names such."""
    entries = list(system.glob(path, detail=True).values())
    fixed = re.split(r"[*?\[]", path, maxsplit=1)[0].rpartition("/")[0]
    if _hidden(_below(path, fixed)):
        return entries
    return [entry for entry in entries if not _hidden(_below(entry["name"], fixed))]


def _below(path: str, folder: str) -> str:
    """A path from a folder on; its name alone if it is elsewhere."""
    path, root = path.rstrip("/"), f"{folder.rstrip('/')}/" if folder else ""
    return path.removeprefix(root) if path.startswith(root) else path.rpartition("/")[2]


def _hidden(path: str) -> bool:
    """Whether a file is a mark or a leftover of what wrote the data, or in a folder of such."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _made(store: Store, entry: Mapping[str, Any]) -> Iterator[File | Folder]:
    """The file or folder that a store tells of; what is neither makes none."""
    path, kind, size = entry["name"], entry["type"], entry.get("size")
    if kind == "directory":
        yield Folder(store, path)
    elif kind == "file":
        stamp = next((f"{name}={entry[name]}" for name in _STAMPS if entry.get(name)), "")
        yield File(store, path, int(size or 0), stamp, size is not None)


def _sorted(found: list[_Named]) -> list[_Named]:
    return sorted(found, key=lambda place: natural(place.path))


def _asked_again(file: File) -> File:
    try:
        found = list(_made(file.store, file.store.system.info(file.path)))
    except Exception:  # noqa: BLE001 - each file system raises its own
        return file
    return found[0] if found and isinstance(found[0], File) else file


def _advice(system: Any, path: str) -> str:
    """Names files beside the one that is missing."""
    if is_glob(path):
        return "check the folder and the pattern"
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        beside = [entry.rstrip("/").rpartition("/")[2] for entry in system.ls(folder, detail=False)]
    except Exception:  # noqa: BLE001 - each file system raises its own
        return ""
    close = difflib.get_close_matches(name, beside, n=3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
