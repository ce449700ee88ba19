"""Where something is saved: a place on a store, and the folder beside it for what is not yet."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from hyperplane.errors import Fault, RequestError, StorageError, check
from hyperplane.public_calls import unknown_name
from hyperplane.storage.retrying import NO_CONNECTION
from hyperplane.stores.locations import Store
from hyperplane.stores.reachability import StoreUnreachable, monitor_open
from hyperplane.stores.redaction import describe_error, redact_url

#: Bytes of a name on a local disk; others are made of it, and disks take 255.
LONGEST_NAME = 200
#: File systems of fsspec to which nothing can be written.
_READ_ONLY = {"http", "https", "data", "zip", "tar", "libarchive", "reference", "git", "github"}
#: What other writers call the columns by whose values they make folders.
_PARTITIONED = {"partition_by", "partition_on", "partition_cols", "partitionBy"}
#: How much alike the names of an option and of an argument are when one is a slip of the other.
_SLIP = 0.8
_FIELD = re.compile(r"\{[^{}/]*\}")


@dataclass(frozen=True)
class Target:
    """A place that is saved to.

    Parameters
    ----------
    store : Store
        Where.
    path : str
        Path on it, without a slash at its end.
    """

    store: Store
    path: str = field(repr=False)

    @property
    def url(self) -> str:
        """The place as messages may name it."""
        return self.path if self.store.local else redact_url(self.address(self.path))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> str:
        """The folder that it is in."""
        return str(PurePosixPath(self.path).parent)

    @property
    def beside(self) -> str:
        """The folder for manifests, and for parts that are not yet published.

        It lies beside the place and not in it: a file that is no part, hidden or not, stops some
        readers of folders (Polars, and Dask with ``filesystem="arrow"``).
        """
        return f"{self.parent}/.{self.name}.hyperplane"

    def address(self, path: str) -> str:
        """A path of the store as other libraries find it."""
        return path if self.store.local else str(self.store.system.unstrip_protocol(path))


def resolve_target(
    url: Any,
    storage_options: Mapping[str, Any] | None,
    more: Mapping[str, Any] | None = None,
) -> Target:
    """What a URL names. Of a link on a local disk, what it leads to: so the link stays.

    Raises
    ------
    RequestError
        When it is none, is a glob or a chain of URLs, or names a whole bucket or disk; or when
        the options ask for a file system that has to be awaited.
    StorageError
        When nothing listens at the address of its store, or its host name is not known.
    """
    allowed = "a path or URL of one file or folder"
    if not isinstance(url, (str, os.PathLike)) or not str(url).strip():
        raise RequestError([Fault("url", repr(url)[:80], allowed)])
    text: Any = os.fspath(url)  # a path may say bytes
    if not isinstance(text, str) or not _is_valid_name(text):
        wrong = Fault("url", ascii(text)[:80], f"{allowed}, as text without zero bytes")
        raise RequestError([wrong])
    given: Any = storage_options  # what a caller passes is not always what the types say
    if not isinstance(given, Mapping | None):
        asked = f"a {type(given).__name__}"  # not shown: it may be a secret
        raise RequestError([Fault("storage_options", asked, "a mapping for fsspec")])
    options = {**(given or {}), **(more or {})}
    if options.get("asynchronous"):
        wrong = Fault("asynchronous", "True", "False", "leave it out; nothing here is awaited")
        raise RequestError([wrong])
    if "::" in text:
        # To fsspec it is a chain, also in a path of this machine, and the name would be another.
        advice = "write the URL of the store itself; a name cannot have :: in it"
        wrong = Fault("url", repr(redact_url(text)), f"{allowed}, without ::", advice)
        raise RequestError([wrong])
    try:
        with monitor_open(text, options):
            system, path = fsspec.url_to_fs(text, **options)
    except StoreUnreachable as error:
        raise StorageError(
            redact_url(text), f"{NO_CONNECTION} ({describe_error(error, options, text)})"
        ) from error
    except Exception as error:  # each file system raises its own
        wrong = Fault(
            "url",
            repr(redact_url(text)),
            f"a URL that fsspec can open ({describe_error(error, options, text)})",
        )
        raise RequestError([wrong]) from error
    path = path.rstrip("/")
    if isinstance(system, LocalFileSystem):
        store = Store("file", "file:///", options)
        deep = path not in ("", "/")
        try:
            path = os.path.realpath(path) if Path(path).is_symlink() else path
            Path(path).exists()
        except OSError as error:  # too long, or through a folder that nobody may enter
            wrong = Fault("url", repr(redact_url(text))[:80], f"{allowed} ({error.strerror})")
            raise RequestError([wrong]) from error
    else:
        protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
        store = Store(protocol, text, options)
        deep = path != "" if protocol == "memory" else "/" in path.strip("/")
    if not deep:
        raise RequestError([Fault("url", repr(redact_url(text)), f"{allowed}, not a whole store")])
    if "*" in path or ".." in PurePosixPath(path).parts:
        raise RequestError([Fault("url", repr(redact_url(text)), f"{allowed}, without * and ..")])
    return Target(store, path)


def _is_valid_name(text: str) -> bool:
    """Whether a disk can have a name: all of it can be written as UTF-8, and nothing ends it."""
    return "\0" not in text and not any("\ud800" <= one <= "\udbff" for one in text)


def location_faults(target: Target) -> list[Fault]:
    """What is wrong with a place to save to, though one may load from it.

    Examples
    --------
    >>> print(*place_faults(target_of("memory://docs/out_{idx:05d}.csv", None)))
    url = 'memory:///docs/out_{idx:05d}.csv': allowed is a name without {}; write ...
    """
    faults = read_only_faults(target)
    if has_field(target.path):
        advice = "write it as hyperplane.output_path(url, idx), or say shard=(idx, n)"
        faults.append(Fault("url", repr(target.url), "a name without {}", advice))
    if not target.store.local:
        return faults
    if len(os.fsencode(target.name)) > LONGEST_NAME:
        allowed = f"a name of at most {LONGEST_NAME} bytes"
        faults.append(Fault("url", repr(target.url), allowed, "choose a shorter one"))
    # What is saved takes the place of all that is there.
    elif _contains_cwd(target.path) or os.path.ismount(target.path):
        allowed = "a file or folder of its own, not the current folder, one above it or a disk"
        faults.append(Fault("url", repr(target.url), allowed, "add a name to it"))
    return faults


def read_only_faults(target: Target) -> list[Fault]:
    """Return a fault for a place on a file system that can only be read."""
    if target.store.protocol not in _READ_ONLY:
        return []
    advice = "save to a disk or an object store"
    allowed = f"a place that can be written to; {target.store.protocol} can only be read"
    return [Fault("url", repr(target.url), allowed, advice)]


def has_field(path: str) -> bool:
    """Whether a path has a field such as ``{}`` or ``{idx}``."""
    return _FIELD.search(path) is not None


def _contains_cwd(path: str) -> bool:
    """Whether it is the current folder, or one that the current folder is in."""
    try:
        return Path.cwd().is_relative_to(path)
    except FileNotFoundError:
        return False  # the current folder has been removed


def check_options(url: Any, options: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Refuse options that are misspelt arguments of the function, or that no file system takes.

    Parameters
    ----------
    url : object
        The URL as it was given.
    options : mapping
        The function's ``**options``, which are meant for the file system.
    function : callable
        The public function.

    Raises
    ------
    UnknownArgument
        With every option of a local disk, which has none; and with those of a store that the store
        does not name and that are spelt almost as an argument of the function.
    """
    if not options:
        return
    parameters = inspect.signature(function).parameters.values()
    known = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
    system = _system_class(url)
    of_store = _option_names(system)
    faults = []
    for name, value in options.items():
        fault = unknown_name(name, value, known, function.__name__)
        if system is LocalFileSystem:
            advice = fault.advice or "a file of this machine has no options"
            faults.append(replace(fault, advice=advice))
        elif name not in of_store and get_close_matches(name, known, n=1, cutoff=_SLIP):
            faults.append(fault)
    check(faults)


def _system_class(url: Any) -> Any:
    """The class of the file system of a URL; None when it cannot be told, or is not installed."""
    try:
        return fsspec.get_filesystem_class(fsspec.utils.get_protocol(os.fspath(url)))
    except (ImportError, TypeError, ValueError):
        return None


def _option_names(system: Any) -> set[str]:
    """The options that a class of file systems and its parents name."""
    classes = getattr(system, "__mro__", ())
    makers = [vars(one)["__init__"] for one in classes if "__init__" in vars(one)]
    with contextlib.suppress(ValueError):  # of a maker written in C
        return {name for maker in makers for name in inspect.signature(maker).parameters}
    return set()


def check_partition_options(options: Mapping[str, Any]) -> None:
    """Refuse what other writers take for folders by value, and say how to write these.

    Raises
    ------
    RequestError
        Also for stores, whose libraries would take it for an option of theirs.
    """
    allowed = "an argument of this call, which writes a file for each partition"
    advice = "for folders by value write df.reset_index().to_parquet(url, partition_on=[...])"
    check(
        Fault(name, repr(value)[:80], allowed, advice)
        for name, value in options.items()
        if name in _PARTITIONED
    )
