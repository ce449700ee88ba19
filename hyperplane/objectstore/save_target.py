"""Targets of ``save`` and ``load``: their URLs, options, and folders of metadata."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from hyperplane.core.errors import Fault, RequestError, StorageError, check
from hyperplane.core.public_calls import unknown_name
from hyperplane.objectstore.locations import Location, Store
from hyperplane.objectstore.missing_packages import advise_installation
from hyperplane.objectstore.reachability import StoreUnreachable, monitor_open
from hyperplane.objectstore.redaction import describe_error, redact_url
from hyperplane.objectstore.retrying import NO_CONNECTION
from hyperplane.objectstore.special_files import is_special_file

#: Maximum bytes of a name on local disk: disks allow 255, and names of temporary files are longer.
LONGEST_NAME = 200
#: Read-only file systems of fsspec.
_READ_ONLY = {"http", "https", "data", "zip", "tar", "libarchive", "reference", "git", "github"}
#: Arguments of other writers for columns whose values become folder names.
_PARTITIONED = {"partition_by", "partition_on", "partition_cols", "partitionBy"}
#: Minimum similarity of an option to the argument that it may misspell.
_MISSPELLING_CUTOFF = 0.8
_FIELD = re.compile(r"\{[^{}/]*\}")


@dataclass(frozen=True)
class Target(Location):
    """Location of a saved output; its path has no trailing slash."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> str:
        """Folder that contains the target."""
        return str(PurePosixPath(self.path).parent)

    @property
    def metadata_folder(self) -> str:
        """Folder for manifests and unpublished parts.

        It is beside the target and not in it, because a file that is not a part, even a hidden one,
        breaks some readers of folders (Polars, and Dask with ``filesystem="arrow"``).
        """
        return f"{self.parent}/.{self.name}.hyperplane"


def resolve_target(
    url: Any,
    storage_options: Mapping[str, Any] | None,
    extra_options: Mapping[str, Any] | None = None,
) -> Target:
    """Return the target of a URL; a path on local disk that is a link is resolved.

    Raises
    ------
    RequestError
        If the URL is invalid, a glob, a chain of URLs, or the URL of a whole bucket or disk, or if
        the options request an asynchronous file system.
    StorageError
        If nothing listens at the server's address, or its host name is unknown.
    """
    allowed = "a path or URL of one file or folder"
    if not isinstance(url, (str, os.PathLike)) or not str(url).strip():
        raise RequestError([Fault("url", repr(url)[:80], allowed)])
    text: Any = os.fspath(url)  # may be bytes
    if not isinstance(text, str) or not _is_valid_name(text):
        fault = Fault("url", ascii(text)[:80], f"{allowed}, as a string without null bytes")
        raise RequestError([fault])
    store_options: Any = storage_options  # callers may pass another type
    if not isinstance(store_options, Mapping | None):
        type_name = f"a {type(store_options).__name__}"  # not its value, which may be a secret
        raise RequestError([Fault("storage_options", type_name, "a mapping for fsspec")])
    options = {**(store_options or {}), **(extra_options or {})}
    if options.get("asynchronous"):
        fault = Fault(
            "asynchronous", "True", "False", "omit it; all file systems are used synchronously"
        )
        raise RequestError([fault])
    if "::" in text:
        # fsspec takes :: for a chain of URLs even in a local path.
        advice = "use the URL of the store itself; names must not contain ::"
        fault = Fault("url", repr(redact_url(text)), f"{allowed}, without ::", advice)
        raise RequestError([fault])
    try:
        with monitor_open(text, options):
            system, path = fsspec.url_to_fs(text, **options)
    except StoreUnreachable as error:
        raise StorageError(
            redact_url(text), f"{NO_CONNECTION} ({describe_error(error, options, text)})"
        ) from error
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        fault = Fault(
            "url",
            repr(redact_url(text)),
            f"a URL that fsspec can open ({describe_error(error, options, text)})",
            advice := advise_installation(error, text),
        )
        raise RequestError([fault]) from (None if advice else error)
    path = path.rstrip("/")
    if isinstance(system, LocalFileSystem):
        store = Store("file", "file:///", options)
        is_below_root = path not in ("", "/")
        try:
            path = os.path.realpath(path) if Path(path).is_symlink() else path
            Path(path).exists()
        except OSError as error:  # the name is too long, or a folder is not accessible
            fault = Fault("url", repr(redact_url(text))[:80], f"{allowed} ({error.strerror})")
            raise RequestError([fault]) from error
    else:
        protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
        store = Store(protocol, text, options)
        is_below_root = path != "" if protocol == "memory" else "/" in path.strip("/")
    if not is_below_root:
        raise RequestError([Fault("url", repr(redact_url(text)), f"{allowed}, not a whole store")])
    if "*" in path or ".." in PurePosixPath(path).parts:
        advice = f"write it as {os.path.realpath(path)}" if store.local and "*" not in path else ""
        fault = Fault("url", repr(redact_url(text)), f"{allowed}, without * and ..", advice)
        raise RequestError([fault])
    return Target(store, path)


def _is_valid_name(text: str) -> bool:
    """Return whether a text can be a file name: without null and unpaired high surrogates."""
    # Python represents undecodable bytes of file names as low surrogates, so these are valid.
    return "\0" not in text and not any("\ud800" <= char <= "\udbff" for char in text)


def location_faults(target: Target) -> list[Fault]:
    """Return the faults of a target for saving; loading from it may still be possible.

    Examples
    --------
    >>> location_faults(resolve_target("memory://docs/out_{idx:05d}.csv", None))[0].allowed
    'a name without {}'
    """
    faults = read_only_faults(target)
    if has_field(target.path):
        advice = "pass hyperplane.output_path(url, idx), or shard=(idx, n)"
        faults.append(Fault("url", repr(target.url), "a name without {}", advice))
    if not target.store.local:
        return faults
    if len(os.fsencode(target.name)) > LONGEST_NAME:
        allowed = f"a name of at most {LONGEST_NAME} bytes"
        faults.append(Fault("url", repr(target.url), allowed, "choose a shorter one"))
    # Saving would replace everything in the folder.
    elif _contains_cwd(target.path) or os.path.ismount(target.path):
        allowed = "a new file or folder, not the current folder, a parent of it, or a disk"
        faults.append(Fault("url", repr(target.url), allowed, "add a name to it"))
    elif is_special_file(target.path):
        allowed = "a file or folder, not a device, pipe or socket, which saving would replace"
        faults.append(Fault("url", repr(target.url), allowed, "choose another name"))
    return faults


def read_only_faults(target: Target) -> list[Fault]:
    """Return a fault if the target's file system is read-only."""
    if target.store.protocol not in _READ_ONLY:
        return []
    advice = "save to a disk or an object store"
    allowed = f"a writable store; {target.store.protocol} can only be read"
    return [Fault("url", repr(target.url), allowed, advice)]


def has_field(path: str) -> bool:
    """Return whether a path has a field such as ``{}`` or ``{idx}``."""
    return _FIELD.search(path) is not None


def _contains_cwd(path: str) -> bool:
    """Return whether a path is the current folder or a parent of it."""
    try:
        return Path.cwd().is_relative_to(path)
    except FileNotFoundError:
        return False  # the current folder has been removed


def check_options(url: Any, options: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Raise for misspelled arguments of a function, and for any option of a local path.

    Parameters
    ----------
    url : object
        The URL as given.
    options : mapping
        The function's ``**options``, which are meant for the file system.
    function : callable
        The public function.

    Raises
    ------
    UnknownArgument
        With every option of a local path, which has none, and every option that the store does
        not know and whose name is close to an argument of the function.
    """
    if not options:
        return
    parameters = inspect.signature(function).parameters.values()
    known = [
        parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD
    ]
    system = _system_class(url)
    of_store = _option_names(system)
    faults = []
    for name, value in options.items():
        fault = unknown_name(name, value, known, function.__name__)
        if system is LocalFileSystem:
            advice = fault.advice or "a local path has no options"
            faults.append(replace(fault, advice=advice))
        elif name not in of_store and get_close_matches(
            name, known, n=1, cutoff=_MISSPELLING_CUTOFF
        ):
            faults.append(fault)
    check(faults)


def _system_class(url: Any) -> Any:
    """Return the file system class of a URL; None if it is unknown or not installed."""
    try:
        return fsspec.get_filesystem_class(fsspec.utils.get_protocol(os.fspath(url)))
    except (ImportError, TypeError, ValueError):
        return None


def _option_names(system: Any) -> set[str]:
    """Return the names of the options of a file system class and its parents."""
    classes = getattr(system, "__mro__", ())
    constructors = [vars(base)["__init__"] for base in classes if "__init__" in vars(base)]
    with contextlib.suppress(ValueError):  # constructors written in C have no signature
        return {
            name
            for constructor in constructors
            for name in inspect.signature(constructor).parameters
        }
    return set()


def check_partition_options(options: Mapping[str, Any]) -> None:
    """Raise for arguments by which other writers partition data by value.

    Raises
    ------
    RequestError
        If there is one, on any store: a file system might accept the argument as an option. The
        message says how to partition by value.
    """
    allowed = "an argument of this function, which writes a file for each partition"
    advice = "for folders by value use df.reset_index().to_parquet(url, partition_on=[...])"
    check(
        Fault(name, repr(value)[:80], allowed, advice)
        for name, value in options.items()
        if name in _PARTITIONED
    )
