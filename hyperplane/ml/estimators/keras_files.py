"""Files of Keras models and weights: the archive ``.keras``, and HDF5 with a model or weights."""

from __future__ import annotations

import io
import json
import os
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyperplane.core.errors import Fault, ReadError, check
from hyperplane.core.optional import need
from hyperplane.ml.estimators.keras_model import (
    load_weights,
    pack_model,
    save_archive,
    save_weights,
)
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles

#: First bytes of a file of HDF5.
_HDF5 = b"\x89HDF\r\n\x1a\n"


def find_path_faults(where: str, path: Any) -> list[Fault]:
    """Return the fault of a path that is not a text or path."""
    if isinstance(path, str | os.PathLike) and os.fspath(path):
        return []
    return [Fault(where, repr(path)[:80], "a path or URL")]


def write_file(path: Any, data: bytes, overwrite: bool = True) -> None:
    """Write bytes to a path or URL, completely or not at all."""
    target = resolve_target(os.fspath(path), None)
    files = StoreFiles(target.store)
    if not overwrite and files.is_file(target.path):
        check([Fault("path", repr(os.fspath(path)), "a new file", "or pass overwrite=True")])
    files.put(target.path, data)


def read_file(path: Any) -> bytes:
    """Return the bytes of a file."""
    target = resolve_target(os.fspath(path), None)
    data = StoreFiles(target.store).get(target.path)
    if data is None:
        raise ReadError(target.url, "does not exist")
    return data


def encode_model(model: Any, path: Any) -> bytes:
    """Return a model in the format that the suffix of a path names: weights, HDF5 or archive."""
    name = os.fspath(path)
    if name.endswith(".weights.h5"):
        return save_weights(model)
    if not name.endswith((".h5", ".hdf5")):
        return save_archive(model)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras recommends its archive
        file = Path(folder, "model.h5")
        # A copy: this format changes how the model is saved afterwards (Keras 3.15).
        pack_model(model).build().save(file)
        return file.read_bytes()


def is_archive(data: bytes) -> bool:
    """Return whether bytes are a model in Keras' format."""
    return zipfile.is_zipfile(io.BytesIO(data))


def decode_model(data: bytes, url: str) -> Any | None:
    """Return the model in the bytes of a file; None if it has weights only.

    Loading runs no code of the file: Keras refuses functions that are part of it, and classes of
    the user must be registered with ``keras.saving.register_keras_serializable``.
    """
    keras: Any = need("keras", "tensorflow")
    h5py: Any = need("h5py", "tensorflow")
    suffix = ".keras" if is_archive(data) else ".h5"
    if suffix == ".h5":
        try:
            with h5py.File(io.BytesIO(data)) as file:
                if "model_config" not in file.attrs:
                    return None
        except OSError as error:
            raise ReadError(url, "is not a file of Keras: neither an archive nor HDF5") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model{suffix}")
        path.write_bytes(data)
        if suffix == ".keras":
            _check_archive(data, url)  # not the errors of layers of the user, which Keras creates
            return keras.saving.load_model(path, safe_mode=True)
        try:
            return keras.saving.load_model(path, custom_objects=_get_short_names())
        except (TypeError, ValueError):  # a loss or metric that the older format does not describe
            return keras.saving.load_model(path, compile=False)


def _get_short_names() -> dict[str, Any]:
    """Return losses by their short names, which Keras 3 does not know in its older format."""
    keras: Any = need("keras", "tensorflow")
    names = ("mse", "mae", "mape", "msle", "bce")
    return {name: keras.losses.get(name) for name in names}


def _check_archive(data: bytes, url: str) -> None:
    """Raise a ReadError if a model's archive is damaged, or lacks a file of Keras."""
    with _reading(url), zipfile.ZipFile(io.BytesIO(data)) as archive:
        if (damaged := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{damaged} has another checksum")
        json.loads(archive.read("config.json"))
        if "model.weights.npz" not in archive.namelist():
            with archive.open("model.weights.h5") as file:
                if file.read(len(_HDF5)) != _HDF5:
                    raise OSError("model.weights.h5 is no file of HDF5")


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """Raise a ReadError if an archive is damaged, or lacks a file of Keras."""
    try:
        yield
    except (
        KeyError, ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())[:200]
        raise ReadError(url, f"is damaged, or no archive of Keras ({reason})") from error


def extract_weights(model: Any, data: bytes, url: str) -> None:
    """Set the weights of a built model from the bytes of any file of Keras."""
    if is_archive(data):
        with _reading(url), zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read("model.weights.h5")
        load_weights(model, data)
        return
    whole = decode_model(data, url)
    if whole is None:
        load_weights(model, data)
    else:
        model.set_weights(whole.get_weights())
