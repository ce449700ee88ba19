"""Registry of models: names and versions in a folder of any store."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from hyperplane.core.argument_checks import describe_value, find_flag_faults
from hyperplane.core.errors import Fault, OutputExists, RequestError, StorageError, check
from hyperplane.core.public_calls import check_call
from hyperplane.ml.prediction.model_files import (
    DEFAULT_RECORD,
    VERSION_RECORD,
    find_model,
    load_model,
)
from hyperplane.ml.prediction.model_formats import FRAMEWORKS, PACKAGES
from hyperplane.ml.prediction.network_predictors import (
    encode_network,
    is_program,
    list_input_names,
)
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.save_target import read_only_faults, resolve_target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.object_encoding import encode_object

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME_ALLOWED = "a letter, then up to 127 letters, digits, _ and -"
_VERSION_ALLOWED = (
    "up to 128 letters, digits, and . _ -, the first one a letter or digit; not default.json"
)
_NUMBERED = re.compile(r"v([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class ModelVersion:
    """One version of a model in a registry.

    Parameters
    ----------
    name, version : str
        Name of the model, and of its version.
    is_default : bool
        Whether it is the default version of the model.
    framework : str
        ``"scikit-learn"``, ``"xgboost"``, ``"keras"``, ``"tensorflow"`` or ``"torch"``.
    created : str
        Time of its creation in UTC, in ISO 8601.
    columns : tuple of str or None
        Columns that it was fitted with; None if they have no names.
    packages : dict of str to str
        Versions of the packages with which it was created.
    url : str
        Folder of the version, for ``predict_files`` and ``predict``.
    file, sha256, size : str, str, int
        Name, checksum and bytes of its file.
    """

    name: str
    version: str
    is_default: bool
    framework: str
    created: str
    columns: tuple[str, ...] | None
    packages: Mapping[str, str]
    url: str
    file: str
    sha256: str
    size: int


class ModelRegistry:
    """Models with versions in a folder; each model has one default version.

    Processes may use a registry at the same time: a version is created once, with all of its
    content, and never changes.

    Parameters
    ----------
    url : str or path
        Folder of the registry, on a disk or an object store.
    storage_options : mapping, optional
        Options of the file system.

    Examples
    --------
    >>> import tempfile
    >>> from hyperplane.ml import ModelRegistry
    >>> from sklearn.linear_model import LinearRegression
    >>> models = ModelRegistry(tempfile.mkdtemp() + "/models")
    >>> first = models.create("delay", LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0]))
    >>> first.version, first.is_default
    ('v1', True)
    """

    @check_call
    def __init__(
        self, url: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self._target = resolve_target(url, storage_options)
        self._files = StoreFiles(self._target.store)
        self._options = storage_options

    def __repr__(self) -> str:
        return f"ModelRegistry({self._target.url!r})"

    @check_call(outcome="nothing was created")
    def create(
        self,
        name: str,
        model: Any,
        version: str | None = None,
        *,
        default: bool = False,
        trusted: bool = False,
    ) -> ModelVersion:
        """Create a version of a model; the first one becomes the default.

        Parameters
        ----------
        name : str
            Name of the model.
        model : object, str or path
            A fitted model of scikit-learn, XGBoost or Keras, or a program of ``torch.export``; or a
            file or folder of one, as for :func:`predict_files`.
        version : str, optional
            Name of the version; ``v1``, ``v2`` and so on if omitted.
        default : bool
            Whether it becomes the default version.
        trusted : bool
            Whether to load a file that can run code.

        Returns
        -------
        ModelVersion
            The new version.

        Raises
        ------
        RequestError
            With every fault.
        OutputExists
            If the version exists with another content.
        """
        faults = [
            *_find_name_faults(name),
            *([] if version is None else _find_version_faults(version)),
            *find_flag_faults(default=default, trusted=trusted),
            *read_only_faults(self._target),
        ]
        is_file = isinstance(model, str | os.PathLike)
        if not is_file and not (callable(getattr(model, "predict", None)) or is_program(model)):
            allowed = "a fitted model, or the path or URL of a saved one"
            advice = "export it with torch.export.export" if hasattr(model, "state_dict") else ""
            faults.append(Fault("model", f"a {type(model).__name__}", allowed, advice))
        check(faults)
        data, suffix, columns = self._read(model, trusted) if is_file else _encode(model)
        sha256 = hashlib.sha256(data).hexdigest()
        record = {
            "framework": FRAMEWORKS[suffix],
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "columns": columns,
            "packages": _list_packages(FRAMEWORKS[suffix]),
            "file": f"model-{sha256[:16]}{suffix}",
            "sha256": sha256,
            "size": len(data),
        }
        created = self._publish(name, version, record, data)
        if default:
            self._write_default(name, created)
        else:
            with suppress(FileExistsError):  # there is a default version
                self._files.put_new(self._path(name, DEFAULT_RECORD), _encode_default(created))
        return self.get(name, created)

    def _read(self, url: Any, trusted: bool) -> tuple[bytes, str, list[str] | None]:
        """Return content, suffix and columns of a saved model, which is loaded as a check."""
        file = find_model(url, trusted=trusted, storage_options=self._options)
        predictor, _ = load_model(file)
        data = file.read()
        if data is None or hashlib.sha256(data).hexdigest() != file.sha256:
            raise StorageError(file.url, "was removed or replaced while it was read")
        return data, file.suffix, predictor.columns

    def _publish(self, name: str, version: str | None, record: dict[str, Any], data: bytes) -> str:
        """Write the file of a version, then its record, which makes it visible."""
        number = 0
        while True:
            if version is None:
                number = max(number, self._last_number(name)) + 1
            new = version or f"v{number}"
            content = json.dumps({"version": new, **record}, indent=1).encode()
            existing = self._read_record(name, new)
            if existing is None:
                self._files.put(self._path(name, new, record["file"]), data)
                self._files.verify(self._path(name, new, record["file"]), data)
                try:
                    self._files.put_new(self._path(name, new, VERSION_RECORD), content)
                    return new
                except FileExistsError:  # another process created it first
                    existing = self._read_record(name, new)
                    if existing is not None and existing.get("file") != record["file"]:
                        self._files.remove([self._path(name, new, record["file"])])
            if version is None:
                continue
            if existing is not None and existing.get("sha256") == record["sha256"]:
                return new  # a repeated call
            url = Location(self._target.store, self._path(name, new)).url
            raise OutputExists(url, "this version exists with another model; use another name")

    @check_call
    def list_versions(self, name: str | None = None) -> list[ModelVersion]:
        """Return all versions, or those of one model, sorted by name and version.

        Raises
        ------
        RequestError
            If there is no model of that name.
        """
        check([] if name is None else _find_name_faults(name))
        below = self._target.path if name is None else self._path(name)
        found = []
        for path in self._files.list_files(below):
            parts = PurePosixPath(path).parts
            parts = parts if name is None else (name, *parts)
            if len(parts) == 3 and parts[2] == VERSION_RECORD:
                found.append((parts[0], parts[1]))
        if name is not None and not found:
            check([self._unknown_model(name)])
        defaults = {each: self._read_default(each) for each in {model for model, _ in found}}
        versions = [self._get(model, version, defaults[model]) for model, version in found]
        return sorted(
            (each for each in versions if each is not None),
            key=lambda each: (each.name, _sort_key(each.version)),
        )

    @check_call
    def get(self, name: str, version: str | None = None) -> ModelVersion:
        """Return a version of a model; by default the default version.

        Raises
        ------
        RequestError
            If it does not exist; the error lists those that do.
        """
        faults = [
            *_find_name_faults(name),
            *([] if version is None else _find_version_faults(version)),
        ]
        check(faults)
        default = self._read_default(name)
        wanted = version or default
        found = None if wanted is None else self._get(name, wanted, default)
        if found is None:
            known = [
                each.version for each in self.list_versions(name)
            ]  # raises if there is no model
            allowed = f"one of {', '.join(known)}"
            is_lost = version is None and default is not None
            advice = f"the default version {default} was removed; set another" if is_lost else ""
            asked = "nothing" if version is None else repr(version)
            raise RequestError([Fault("version", asked, allowed, advice)])
        return found

    @check_call(outcome="nothing was changed")
    def set_default(self, name: str, version: str) -> ModelVersion:
        """Make an existing version the default one of its model.

        Raises
        ------
        RequestError
            If it does not exist; the error lists those that do.
        """
        check([*_find_name_faults(name), *_find_version_faults(version)])
        self.get(name, version)
        self._write_default(name, version)
        return self.get(name, version)

    def _write_default(self, name: str, version: str) -> None:
        self._files.put(self._path(name, DEFAULT_RECORD), _encode_default(version))

    def _get(self, name: str, version: str, default: str | None) -> ModelVersion | None:
        record = self._read_record(name, version)
        if record is None:
            return None
        folder = Location(self._target.store, self._path(name, version)).url
        try:
            columns = record["columns"]
            return ModelVersion(
                name=name,
                version=version,
                is_default=version == default,
                framework=record["framework"],
                created=record["created"],
                columns=None if columns is None else tuple(columns),
                packages=dict(record["packages"]),
                url=folder,
                file=record["file"],
                sha256=record["sha256"],
                size=record["size"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(folder, f"has a damaged {VERSION_RECORD}") from error

    def _read_record(self, name: str, version: str) -> dict[str, Any] | None:
        return self._read_json(self._path(name, version, VERSION_RECORD))

    def _read_default(self, name: str) -> str | None:
        """Return the default version of a model; None if there is no model of that name."""
        record = self._read_json(self._path(name, DEFAULT_RECORD))
        return None if record is None else str(record.get("version", ""))

    def _read_json(self, path: str) -> dict[str, Any] | None:
        data = self._files.get(path)
        if data is None:
            return None
        with suppress(ValueError):
            record = json.loads(data)
            if isinstance(record, dict):
                return record
        raise StorageError(Location(self._target.store, path).url, "is damaged")

    def _last_number(self, name: str) -> int:
        """Return the largest number of versions such as ``v3``; 0 if there is none."""
        folders = {
            PurePosixPath(path).parts[0] for path in self._files.list_files(self._path(name))
        }
        return max(
            (int(found[1]) for each in folders if (found := _NUMBERED.fullmatch(each))), default=0
        )

    def _path(self, *parts: str) -> str:
        return "/".join([self._target.path, *parts])

    def _unknown_model(self, name: str) -> Fault:
        known = sorted({each.name for each in self.list_versions()})
        allowed = f"one of {', '.join(known)}" if known else "a model; the registry has none"
        return Fault("name", repr(name), allowed)


def _encode(model: Any) -> tuple[bytes, str, list[str] | None]:
    """Return the file of a model in memory, its suffix and its columns."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    if type(booster).__module__.partition(".")[0] == "xgboost":
        names = booster.feature_names
        return bytes(booster.save_raw("ubj")), ".ubj", None if names is None else list(names)
    network = encode_network(model)
    if network is not None:
        try:
            return (*network, list_input_names(model))
        except ValueError as error:
            shown = f"a {type(model).__name__}"
            raise RequestError(
                [Fault("model", shown, f"a network for any rows: {error}")]
            ) from error
    names = getattr(model, "feature_names_in_", None)
    columns = None if names is None else [str(name) for name in names]
    return encode_object(model, "model", "skops", ".skops"), ".skops", columns


def _encode_default(version: str) -> bytes:
    return json.dumps({"version": version}).encode()


def _find_name_faults(name: Any) -> list[Fault]:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return []
    return [Fault("name", describe_value(name), _NAME_ALLOWED)]


def _find_version_faults(version: Any) -> list[Fault]:
    is_name = isinstance(version, str) and _VERSION.fullmatch(version)
    if is_name and version != DEFAULT_RECORD:
        return []
    return [Fault("version", describe_value(version), _VERSION_ALLOWED)]


def _sort_key(version: str) -> tuple[int, str]:
    found = _NUMBERED.fullmatch(version)
    return (int(found[1]) if found else 0, version)


def _list_packages(framework: str) -> dict[str, str]:
    """Return the installed versions of Python's packages that a model depends on."""
    versions = {}
    for package in ("hyperplane", *PACKAGES[framework]):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
