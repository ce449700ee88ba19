"""Encode objects that are not tables as the bytes of a file, and decode them."""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.optional import need
from hyperplane.core.units import format_bytes
from hyperplane.formats.json_values import to_json

#: A fixed time stamp for zip members, so that equal models give equal bytes.
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
#: Memory address of an object, and name of a file by such an address, in the schema of skops.
_ID = re.compile(r'("__id__": )([0-9]+)')
_FILE = re.compile(r'("file": ")([0-9]+)(\.\w+")')


def encode_object(obj: Any, kind: str, format_name: str, suffix: str) -> bytes:
    """Return the bytes of the file of an object."""
    if kind == "bytes":
        return bytes(obj)
    if kind == "text":
        return bytes(obj.encode())
    if kind == "json":
        # Sorted, so that equal dicts give equal bytes.
        text = to_json(obj, "obj", indent=1, sort_keys=True)
        return f"{text}\n".encode()
    if kind == "numpy":
        import numpy as np

        file = io.BytesIO()
        np.save(file, obj, allow_pickle=False)
        return file.getvalue()
    return _encode_figure(obj, suffix) if kind == "figure" else _encode_model(obj, format_name)


def decode_object(data: bytes, kind: str, format_name: str, *, trusted: bool = False) -> Any:
    """Return the object in the bytes of a file.

    ``trusted`` allows types of a skops model that skops does not trust.

    Raises
    ------
    RequestError
        If it is a skops model with such types and ``trusted`` is false.
    """
    if kind == "text":
        return data.decode()
    if kind == "json":
        return json.loads(data)
    if kind == "numpy":
        return _load_npy(data)
    if kind == "model" and format_name == "skops":
        _check_skops(data)  # fails before the import, which takes seconds for scikit-learn
        return _load_skops(data, trusted)
    if kind == "model":
        return need("joblib", "ml").load(io.BytesIO(data))
    return data


def _encode_figure(figure: Any, suffix: str) -> bytes:
    """Return a matplotlib figure as an image file."""
    from matplotlib import rc_context

    file = io.BytesIO()
    # No creation date and no random IDs, so that equal figures give equal bytes.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    with rc_context({"svg.hashsalt": "hyperplane"}):
        figure.savefig(file, format=suffix.lstrip("."), metadata=metadata)
    return file.getvalue()


def _encode_model(model: Any, format_name: str) -> bytes:
    """Return a fitted model as a skops or joblib file."""
    if format_name == "skops":
        return _normalize_skops(need("skops.io", "ml").dumps(model))
    file = io.BytesIO()
    need("joblib", "ml").dump(model, file)
    return file.getvalue()


def _normalize_skops(archive: bytes) -> bytes:
    """Return a skops file without time stamps and memory addresses, for reproducible bytes."""
    numbers: dict[str, int] = {}

    def renumber(match: re.Match[str]) -> str:
        number = numbers.setdefault(match[2], len(numbers) + 1)
        return "".join([match[1], str(number), *match.groups()[2:]])

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as original, zipfile.ZipFile(out, "w") as normalized:
        schema = _FILE.sub(renumber, _ID.sub(renumber, original.read("schema.json").decode()))
        files = {name: original.read(name) for name in original.namelist()}
        files["schema.json"] = schema.encode()
        for name, data in files.items():
            stem, dot, end = name.partition(".")
            new_name = f"{numbers[stem]}{dot}{end}" if stem in numbers else name
            normalized.writestr(zipfile.ZipInfo(new_name, _FIXED_TIME), data)
    return out.getvalue()


def _load_npy(data: bytes) -> Any:
    """Return the array in an NPY file."""
    import numpy as np
    from numpy.lib import format as npy

    file = io.BytesIO(data)
    if data.startswith(npy.MAGIC_PREFIX):
        # NumPy allocates what the header declares, which may exceed the file and the memory.
        version = npy.read_magic(file)
        # Versions 2 and 3 differ only in the encoding of field names.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        declared, available = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
        if min(shape, default=0) < 0 or (declared > available and not dtype.hasobject):
            raise ValueError(
                f"the file is shorter than its header declares: an array of shape {shape} and type "
                f"{dtype} has {format_bytes(declared)}, and the file has {format_bytes(available)}"
            )
        file.seek(0)
    return np.load(file, allow_pickle=False)


def _load_skops(data: bytes, trusted: bool) -> Any:
    """Return the model in a skops file."""
    skops = need("skops.io", "ml")
    untrusted = skops.get_untrusted_types(data=data)
    if untrusted and not trusted:
        shown = ", ".join(map(str, untrusted[:3])) + ", ..." * (len(untrusted) > 3)
        allowed = f"True if you trust the author of the file, as it names the types {shown}"
        raise RequestError([Fault("trusted", "False", allowed)])
    return skops.loads(data, trusted=untrusted)


def _check_skops(data: bytes) -> None:
    """Raise ValueError if the bytes are not an archive with the schema of a skops model."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
    if not isinstance(schema, dict) or "__loader__" not in schema:
        raise ValueError("its schema.json is not that of a skops model")
