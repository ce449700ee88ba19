"""Validate the arguments of ``save``."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeGuard, get_args

from hyperplane.core.errors import Fault, check
from hyperplane.objectstore.save_target import Target, location_faults
from hyperplane.storage.object_checks import content_faults, object_faults
from hyperplane.storage.object_kinds import (
    DEFAULT_FORMATS,
    detect_kind,
    find_format,
    is_format_of,
    list_formats,
)
from hyperplane.storage.replaced_files import COMPRESSIONS

_RUN = re.compile(r"[A-Za-z0-9._-]{1,64}")
Mode = Literal["error", "overwrite", "append", "skip"]


@dataclass(frozen=True)
class SaveRequest:
    """The validated arguments of one save.

    Parameters
    ----------
    target : Target
        Destination of the save.
    kind, format : str
        Kind of the object, and format to write.
    mode : {"error", "overwrite", "append", "skip"}
        Action if something else is saved there.
    shard : (int, int) or None
        Index of the shard and number of shards.
    run : str
        Name of the run to which the shard or the appended parts belong; may be empty.
    """

    target: Target
    kind: str
    format: str
    mode: Mode
    shard: tuple[int, int] | None
    run: str = ""

    @property
    def suffix(self) -> str:
        """The suffix of the target's name."""
        return target_suffix(self.target)

    @property
    def in_parts(self) -> bool:
        """Whether the object is saved as a folder of parts instead of one file."""
        return self.kind in DEFAULT_FORMATS or self.shard is not None

    @property
    def in_folder(self) -> bool:
        """Whether the object, which is no path, is saved as a folder instead of one file."""
        return self.in_parts or self.kind == "array"


def target_suffix(target: Target) -> str:
    """Return the suffix of a target's name in lower case."""
    return PurePosixPath(target.path).suffix.lower()


def parse_request(
    obj: Any,
    target: Target,
    format: str | None,  # noqa: A002
    mode: Any,
    shard: Any,
    run: str | None = None,
    compute: Any = True,
) -> SaveRequest:
    """Return a validated request.

    Raises
    ------
    RequestError
        With every fault of the call.
    """
    kind = detect_kind(obj)
    faults = [*object_faults(obj, kind, computed=compute is not False), *location_faults(target)]
    if not isinstance(mode, str) or mode not in get_args(Mode):
        faults.append(Fault("mode", repr(mode)[:80], "one of " + ", ".join(get_args(Mode))))
        mode = "error"
    if format is not None and not (isinstance(format, str) and format):
        faults.append(Fault("format", repr(format)[:80], "the name of a format, as a string"))
        format = None  # noqa: A001
    if shard is not None and not is_shard(shard):
        allowed = "(index, count) with 0 <= index < count, as hyperplane.shard() returns it"
        faults.append(Fault("shard", repr(shard), allowed))
    if run is not None and not (isinstance(run, str) and _RUN.fullmatch(run)):
        faults.append(Fault("run", repr(run), "a name of up to 64 letters, digits and . _ -"))
    if run is not None and shard is None and mode != "append":
        faults.append(Fault("run", repr(run), "None unless shard= or mode='append' is given"))
    if shard is not None and mode == "overwrite" and run is None:
        allowed = "a name shared by all shards of this run, as they replace those of another run"
        advice = "pass for example the ID of the job"
        faults.append(Fault("run", "None", allowed, advice))
    if shard is not None and mode == "append":
        faults.append(
            Fault(
                "mode",
                "'append'",
                "'error', 'overwrite' or 'skip' with shard=",
                "save to another URL",
            )
        )
    faults += _compute_faults(obj, kind, shard, compute)
    if kind == "series":
        faults.append(Fault("obj", "a Dask series", "a dataframe", "write series.to_frame()"))
    if shard is not None and kind == "table" and not hasattr(obj, "columns"):
        faults.append(
            Fault("obj", "a series with shard=", "a dataframe", "write series.to_frame()")
        )
    if kind == "text" and len(obj) < 4096 and "\n" not in obj and _is_file_name(obj):
        advice = f"to save the file, pass pathlib.Path({obj!r}); for the text itself, obj.encode()"
        faults.append(Fault("obj", repr(obj), "text that is not the name of a local file", advice))
    if kind in ("text", "bytes"):
        faults += content_faults(obj, kind, target_suffix(target))
    in_parts = kind in DEFAULT_FORMATS or (shard is not None and kind == "table")
    saved_kind = "dataframe" if in_parts and kind == "table" else kind
    if shard is not None and not in_parts and kind != "series":
        allowed = "a dataframe, table or bag"
        shown = f"{shard!r} with an object of type {type(obj).__name__}"
        faults.append(Fault("shard", shown, f"shard= only with {allowed}", "omit shard="))
    if mode == "append" and not in_parts and kind != "series":
        allowed = "'error', 'overwrite' or 'skip'; only Dask dataframes and bags are appended"
        advice = "append with xarray's to_zarr(append_dim=...), which is not atomic"
        faults.append(Fault("mode", "'append'", allowed, advice if kind == "array" else ""))
    default = DEFAULT_FORMATS[saved_kind] if in_parts else ""
    format_name = format or find_format(target_suffix(target)) or default
    if kind == "bytes" and format is None:
        format_name = "bytes"
    if kind == "text":
        format_name = "text"
    if not in_parts and kind in ("table", "json", "text", "numpy", "model"):
        faults += find_compression_faults(target)
    if kind not in ("path", "array", "series"):
        faults += find_format_faults(saved_kind, format_name, target, type(obj).__name__, format)
    check(faults)
    valid_shard = None if shard is None else (shard[0], shard[1])
    return SaveRequest(target, kind, format_name, mode, valid_shard, run or "")


def _compute_faults(obj: Any, kind: str, shard: Any, compute: Any) -> list[Fault]:
    """Return the faults of the argument ``compute``."""
    if not isinstance(compute, bool):
        return [Fault("compute", repr(compute)[:80], "True or False")]
    if compute:
        return []
    if shard is not None:
        allowed = "True with shard=, as each shard is saved by the process that has it"
        advice = "save the whole collection without shard=, or omit compute="
        return [Fault("compute", "False", allowed, advice)]
    if kind == "path":
        allowed = "True for a path, as worker processes may have no file of this name"
        advice = f"if they have, write dask.delayed(hyperplane.save)({obj!r}, url)"
        return [Fault("compute", "False", allowed, advice[:300])]
    return []


def find_compression_faults(target: Target) -> list[Fault]:
    """Return a fault if the name of a single file is that of a compressed one."""
    ending = target_suffix(target)
    if ending not in COMPRESSIONS:
        return []
    advice = "omit the suffix; Parquet is compressed already"
    allowed = f"a name without {ending!r}, as save does not compress files"
    return [Fault("url", repr(target.name), allowed, advice)]


def find_format_faults(
    kind: str,
    format_name: str,
    target: Target,
    type_name: str,
    format: str | None = None,  # noqa: A002
) -> list[Fault]:
    """Return a fault if a kind of object cannot be saved in a format.

    ``type_name`` is that of the object, and ``format`` is the argument of ``save``.
    """
    if is_format_of(kind, format_name):
        return []
    suffix = target_suffix(target)
    ending = f"which ends in {suffix!r}" if suffix else "which has no suffix"
    shown = repr(format) if format else f"{target.name!r}, {ending}"
    known = list_formats(kind)
    near = difflib.get_close_matches(str(format or ""), known, 1)
    advice = f"did you mean {near[0]!r}?" if near else "" if format else "pass format="
    all_suffixes = ", ".join(suffix for suffixes in known.values() for suffix in suffixes)
    allowed = f"one of {', '.join(known)} for {type_name} ({all_suffixes})"
    return [Fault("format" if format else "url", shown, allowed, advice)]


def is_shard(shard: Any) -> TypeGuard[tuple[int, int]]:
    """Return whether a value is a pair of shard index and number of shards."""
    return (
        isinstance(shard, tuple)
        and len(shard) == 2
        and all(isinstance(number, int) and not isinstance(number, bool) for number in shard)
        and 0 <= shard[0] < shard[1]
    )


def _is_file_name(text: str) -> bool:
    """Return whether a text is the name of an existing file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False
