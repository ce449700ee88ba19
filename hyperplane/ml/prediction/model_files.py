"""Files of saved models: where they are, and one loaded copy for each process."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, HyperplaneError, ReadError, RequestError, check
from hyperplane.ml.prediction.model_formats import ADVICE, FRAMEWORKS, UNSAFE_SUFFIXES
from hyperplane.ml.prediction.saved_model_folders import GRAPH_FILE, SUFFIX, is_part, pack_folder
from hyperplane.objectstore.locations import Location, Store
from hyperplane.objectstore.redaction import describe_error
from hyperplane.objectstore.save_target import Target, resolve_target
from hyperplane.objectstore.store_files import StoreFiles

if TYPE_CHECKING:
    from hyperplane.ml.prediction.predictors import Predictor

#: Record of a version in a registry, and record of the default version of a model.
VERSION_RECORD, DEFAULT_RECORD = "version.json", "default.json"
#: Loaded models that a process keeps.
_MAX_MODELS = 2
_TRUST = "True if you trust the author of the file, as loading it runs code in it"

_Key = tuple[str, str, bool]
_models: OrderedDict[_Key, Predictor] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class ModelFile:
    """The file of a model, and the checksum of its content.

    Parameters
    ----------
    store, path
        Location of the file.
    sha256 : str
        Checksum of the content; empty if it is unknown.
    trusted : bool
        Whether the caller trusts its author.
    is_folder : bool
        Whether it is the folder of a SavedModel; the content is its archive.
    """

    store: Store
    path: str = field(repr=False)
    sha256: str
    trusted: bool
    is_folder: bool = False

    @property
    def url(self) -> str:
        """The URL for messages, without secrets."""
        return Location(self.store, self.path).url

    @property
    def suffix(self) -> str:
        """The suffix of its name, which determines the framework."""
        return SUFFIX if self.is_folder else PurePosixPath(self.path).suffix.lower()

    def read(self) -> bytes | None:
        """Return the content; None if it does not exist."""
        return _read(StoreFiles(self.store), self.path, is_folder=self.is_folder)


def load_model(file: ModelFile) -> tuple[Predictor, bool]:
    """Return a model, and whether it was loaded now; each process loads it once.

    Raises
    ------
    ReadError
        If the file is missing, damaged or was replaced.
    """
    with _lock:  # threads of a worker wait for one of them
        predictor = _models.get(_key(file))
        if predictor is not None:
            _models.move_to_end(_key(file))
            return predictor, False
        data = file.read()
        if data is None:
            raise ReadError(file.url, "was removed since the prediction began")
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise ReadError(file.url, "was replaced since the prediction began; start it again")
        return _decode_and_keep(data, file), True


def _key(file: ModelFile) -> _Key:
    # A model that one caller trusts is checked again for a caller who does not.
    return file.sha256, file.suffix, file.trusted


def _decode_and_keep(data: bytes, file: ModelFile) -> Predictor:
    predictor = _decode(data, file.suffix, file.url, file.trusted)
    _models[_key(file)] = predictor
    while len(_models) > _MAX_MODELS:
        _models.popitem(last=False)
    return predictor


def _decode(data: bytes, suffix: str, url: str, trusted: bool) -> Predictor:
    from hyperplane.ml.prediction.predictors import decode_model  # it imports pandas

    try:
        return decode_model(data, suffix, trusted=trusted)
    except (HyperplaneError, MemoryError):
        raise
    except Exception as error:  # each library raises its own exceptions
        problem = f"is damaged, or not a model that its suffix names ({describe_error(error)})"
        raise ReadError(url, problem) from error


def find_model(
    url: Any, *, trusted: bool = False, storage_options: Mapping[str, Any] | None = None
) -> ModelFile:
    """Return the file of a model by its URL; load the model in this process.

    The URL is that of a file, of a folder with one file ``model.*``, of the folder of a SavedModel,
    of a version in a registry, or of a model in a registry, which means its default version.

    Raises
    ------
    RequestError
        If there is no model, or it runs code when it is loaded and ``trusted`` is false.
    ReadError
        If the file is damaged, or is not the one that the registry has recorded.
    """
    return load_found(locate_model(url, trusted=trusted, storage_options=storage_options))


def locate_model(
    url: Any, *, trusted: bool = False, storage_options: Mapping[str, Any] | None = None
) -> ModelFile:
    """Return the file of a model by its URL, without reading it; see :func:`find_model`.

    Its checksum is that of the registry, or empty.
    """
    try:
        target = resolve_target(url, storage_options)
    except RequestError as error:
        check(Fault("model", each.asked, each.allowed, each.advice) for each in error.faults)
        raise
    store_files = StoreFiles(target.store)
    found = _ModelPath(target.path) if store_files.is_file(target.path) else _find_in_folder(target)
    file = ModelFile(target.store, found.path, found.sha256, trusted, found.is_folder)
    if file.suffix not in FRAMEWORKS:
        allowed = f"a file with one of the suffixes {', '.join(FRAMEWORKS)}"
        advice = ADVICE.get(file.suffix, "")
        raise RequestError([Fault("model", repr(target.url), allowed, advice)])
    if file.suffix in UNSAFE_SUFFIXES and not trusted:
        raise RequestError([Fault("trusted", "False", _TRUST, UNSAFE_SUFFIXES[file.suffix])])
    return file


def load_found(file: ModelFile) -> ModelFile:
    """Load a model of :func:`locate_model` in this process; return its file with the checksum."""
    data = file.read()
    if data is None:
        raise ReadError(file.url, "does not exist")
    found = replace(file, sha256=hashlib.sha256(data).hexdigest())
    if file.sha256 not in ("", found.sha256):
        problem = f"was changed since the version was created: its SHA-256 is not {file.sha256}"
        raise ReadError(file.url, problem)
    with _lock:
        if _key(found) not in _models:
            _decode_and_keep(data, found)  # a model that cannot be loaded is an error of the call
    return found


@dataclass(frozen=True)
class _ModelPath:
    """Path of a model, and its checksum if a registry has recorded it, otherwise empty."""

    path: str
    sha256: str = ""
    is_folder: bool = False


def _find_in_folder(target: Target) -> _ModelPath:
    """Return the model in a folder."""
    folder, store_files = target.path, StoreFiles(target.store)
    default = store_files.get(f"{folder}/{DEFAULT_RECORD}")
    if default is not None:
        version = _parse(default, "version", target)
        folder = f"{folder}/{version}"
    record = store_files.get(f"{folder}/{VERSION_RECORD}")
    if record is None and default is not None:
        allowed = "a model of a registry whose default version exists"
        advice = f"{version} was removed; name another version, or make it the default one"
        raise RequestError([Fault("model", repr(target.url), allowed, advice)])
    if record is not None:
        path = f"{folder}/{_parse(record, 'file', target)}"
        return _ModelPath(path, _parse(record, "sha256", target))
    files = list(store_files.list_files(folder))
    if GRAPH_FILE in files:
        return _ModelPath(folder, is_folder=True)
    names = [name for name in files if "/" not in name]
    files = [name for name in names if PurePosixPath(name).stem == "model" and _is_model(name)]
    if len(files) == 1:
        return _ModelPath(f"{folder}/{files[0]}")
    found = f"; it has {', '.join(sorted(files))}" if files else ""
    suffixes = ", ".join(FRAMEWORKS)
    allowed = f"a file of a model, or a folder with one file model and one of {suffixes}{found}"
    raise RequestError([Fault("model", repr(target.url), allowed)])


def _read(store_files: StoreFiles, path: str, *, is_folder: bool) -> bytes | None:
    """Return the content of a file, or the archive of a SavedModel; None if it does not exist."""
    if not is_folder:
        return store_files.get(path)
    names = [name for name in store_files.list_files(path) if is_part(name)]
    contents = store_files.map_concurrently(lambda name: store_files.get(f"{path}/{name}"), names)
    files = {name: data for name, data in zip(names, contents, strict=True) if data is not None}
    return pack_folder(files) if files else None


def _is_model(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in FRAMEWORKS


def _parse(data: bytes, key: str, target: Target) -> str:
    """Return a text in a record of a registry."""
    try:
        value = json.loads(data)[key]
    except (ValueError, KeyError, TypeError) as error:
        raise ReadError(target.url, "has a damaged record of a registry of models") from error
    if not isinstance(value, str) or "/" in value:
        raise ReadError(target.url, "has a damaged record of a registry of models")
    return value
