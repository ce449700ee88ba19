"""Registry of the file formats, and the format of files by their suffix.

A format is a class with the methods of the protocols in :mod:`hyperplane.formats.base`, such as
``SupportsRead`` and ``SupportsSave``. CONTRIBUTING.md, *Add a file format*, has the steps.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.registry import Registry
from hyperplane.formats.base import FileFormat, SupportsRead
from hyperplane.formats.suffixes import detect_common_format
from hyperplane.objectstore.file_names import suffix_of
from hyperplane.objectstore.locations import File

#: Formats by name; the first one with a suffix reads its files. Other packages register theirs in
#: the entry-point group.
FORMATS: Registry[FileFormat] = Registry(
    argument="format",
    group="hyperplane.formats",
    built_in={
        "parquet": "hyperplane.formats.parquet.format:ParquetFormat",
        "csv": "hyperplane.formats.csv.format:CsvFormat",
        "tsv": "hyperplane.formats.csv.format:TsvFormat",
        "jsonl": "hyperplane.formats.jsonl.format:JsonLinesFormat",
        "avro": "hyperplane.formats.avro.format:AvroFormat",
        "orc": "hyperplane.formats.orc.format:OrcFormat",
        "text": "hyperplane.formats.text:TextFormat",
        "zarr": "hyperplane.formats.zarr:ZarrFormat",
    },
)

Supported = TypeVar("Supported", bound=FileFormat)


def load(name: Any) -> FileFormat:
    """Return the format of a name.

    Raises
    ------
    RequestError
        If the name is unknown (the error has similar names), or a class of another package is
        invalid.
    """
    format_class = FORMATS.load(name)
    if name in FORMATS.built_in:
        return format_class()
    try:
        file_format = format_class()
        problem = _find_wrong_attribute(file_format, name)
    except Exception as error:  # code of another package
        problem = f"raises {type(error).__name__}: {error}"
        raise RequestError([_make_class_fault(format_class, problem)]) from error
    if problem:
        raise RequestError([_make_class_fault(format_class, problem)])
    return file_format


def _make_class_fault(format_class: type, problem: str) -> Fault:
    return Fault(
        "format", "", f"the class {format_class.__module__}:{format_class.__qualname__} {problem}"
    )


def _find_wrong_attribute(file_format: FileFormat, name: str) -> str:
    """Return the error in the attributes of a format of another package; empty if none."""
    if getattr(file_format, "name", None) != name:
        shown = repr(getattr(file_format, "name", None))
        return f"is registered as {name!r}, and its name is {shown}"
    for attribute in ("suffixes", "saved_suffixes"):
        if attribute == "saved_suffixes" and not hasattr(file_format, attribute):
            continue  # a format that is only read
        suffixes = getattr(file_format, attribute, None)
        may_be_empty = attribute == "suffixes"  # such a format is read with format= only
        valid = isinstance(suffixes, tuple) and all(map(_is_suffix, suffixes))
        if not valid or not (suffixes or may_be_empty):
            return f"needs a tuple of suffixes in lower case, such as '.a', as {attribute}"
    return ""


def _is_suffix(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(".") and value == value.lower()


def list_formats(
    interface: type[Supported], *, built_in: bool = False
) -> tuple[dict[str, Supported], list[Fault]]:
    """Return the formats that have an interface, by name, and faults of other packages.

    Parameters
    ----------
    interface : type
        A protocol of :mod:`hyperplane.formats.base`.
    built_in : bool
        Whether those of other packages are left out, which imports none of them.
    """
    formats: dict[str, Supported] = {}
    faults: list[Fault] = []
    for name in FORMATS.built_in if built_in else FORMATS.names():
        try:
            file_format = load(name)
        except RequestError as error:
            faults += error.faults
            continue
        if isinstance(file_format, interface):
            formats[name] = file_format
    return formats, faults


def map_suffixes(formats: Mapping[str, FileFormat]) -> dict[str, str]:
    """Return the name of the format of each suffix: of the first format that has it."""
    names: dict[str, str] = {}
    for name, file_format in formats.items():
        for suffix in file_format.suffixes:
            names.setdefault(suffix, name)
    return names


def detect_format(
    files: Sequence[File], interface: type[Supported], urls: Any = None, advice: str = ""
) -> Supported:
    """Return the one format that all files have, by their suffixes.

    Parameters
    ----------
    files : sequence of File
        At least one file.
    interface : type
        The protocol of :mod:`hyperplane.formats.base` that the format must have.
    urls : str, path or iterable of these, optional
        The argument from which the files were listed; it decides whether ``.txt`` files are data.
    advice : str
        Advice for a file with an unknown suffix.

    Raises
    ------
    RequestError
        If a suffix is unknown or the files have several formats; the error
        lists all unknown suffixes.
    """
    formats, broken = list_formats(interface, built_in=True)
    if not map_suffixes(formats).keys() >= {suffix_of(file.path) for file in files}:
        formats, broken = list_formats(interface)
    try:
        return formats[detect_common_format(files, map_suffixes(formats), advice, urls)]
    except RequestError as error:
        raise RequestError([*error.faults, *broken]) from None


def format_of(
    files: Sequence[File], interface: type[Supported], name: Any = None, urls: Any = None
) -> Supported:
    """Return the format with a name; if the name is None, the format of the suffixes.

    Raises
    ------
    RequestError
        If a suffix or ``name`` is unknown or the files have different formats.
    """
    if name is None:
        known = sorted(list_formats(interface, built_in=True)[0])
        advice = f"or set format= to {', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
        return detect_format(files, interface, urls, advice)
    if is_one_of(name, FORMATS.names()):
        file_format = load(name)
        if isinstance(file_format, interface):
            return file_format
    known = sorted(list_formats(interface)[0])
    close = difflib.get_close_matches(str(name), known, n=1)
    advice = f"did you mean {close[0]!r}?" if close else ""
    allowed = f"one of {', '.join(known)}"
    raise RequestError([Fault("format", repr(name)[:80], allowed, advice)])


def check_read_options(file_format: SupportsRead, **arguments: Any) -> dict[str, Any]:
    """Return the options of ``read`` that are not None; raise RequestError for unsupported ones."""
    options = {name: value for name, value in arguments.items() if value is not None}
    unsupported = [name for name in options if name not in file_format.read_options]
    check(_make_option_fault(name, options[name], file_format) for name in unsupported)
    return options


def _make_option_fault(name: str, value: Any, file_format: SupportsRead) -> Fault:
    """Return the fault of an option that files of a format do not have."""
    formats = list_formats(SupportsRead, built_in=True)[0]
    others = [other for other, other_format in formats.items() if name in other_format.read_options]
    advice = f"leave it out: {name} applies to {' and '.join(others)} files only"
    return Fault(name, repr(value)[:80], f"no value for {file_format.name} files", advice)
