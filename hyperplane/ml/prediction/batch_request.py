"""The request of a batch prediction: its checks, and its record beside the results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.argument_checks import (
    describe_value,
    find_count_faults,
    find_flag_faults,
    is_one_of,
)
from hyperplane.core.errors import Fault, RequestError, StorageError, check
from hyperplane.ml.prediction.model_files import ModelFile, load_found, locate_model
from hyperplane.ml.prediction.model_formats import DATA_FORMATS, format_of_file
from hyperplane.objectstore.listing import find_files
from hyperplane.objectstore.locations import File
from hyperplane.objectstore.save_target import Target, location_faults, resolve_target
from hyperplane.objectstore.store_files import StoreFiles

#: Names of the outputs; each has a file of each kind for each input file.
RESULTS, ERRORS = "prediction.results", "prediction.errors_stats"
#: Record of the request; names that begin with _ are skipped by readers of folders.
RECORD = "_prediction.json"
#: Part of a record -> its name in messages.
_PARTS = {
    "model": "the model",
    "inputs": "the input files",
    "data_format": "data_format",
    "batch_size": "batch_size",
    "columns": "columns",
}


@dataclass(frozen=True)
class BatchRequest:
    """Validated arguments of a batch prediction.

    Parameters
    ----------
    model : ModelFile
        The model.
    files : tuple of File
        Input files, in the order of the outputs.
    output : Target
        Folder of the outputs.
    formats : tuple of str
        Format of each file.
    batch_size, max_workers : int
        Rows of one call of the model, and files that are predicted at the same time.
    columns : tuple of str or None
        Columns that the model gets; None for those it was fitted with.
    """

    model: ModelFile
    files: tuple[File, ...]
    output: Target
    formats: tuple[str, ...]
    batch_size: int
    max_workers: int
    columns: tuple[str, ...] | None

    def output_path(self, kind: str, index: int) -> str:
        """Return the path of an output of an input file."""
        return f"{self.output.path}/{kind}-{index:05d}-of-{len(self.files):05d}"

    def to_record(self) -> dict[str, Any]:
        """Return what the outputs depend on."""
        return {
            "model": self.model.sha256,
            "inputs": [[file.url, file.size, file.stamp] for file in self.files],
            "data_format": sorted(set(self.formats)),
            "batch_size": self.batch_size,
            "columns": self.columns and list(self.columns),
        }


def parse_batch_request(
    model: Any,
    input: Any,  # noqa: A002
    output: Any,
    *,
    data_format: Any,
    batch_size: Any,
    max_workers: Any,
    columns: Any,
    trusted: Any,
    storage_options: Mapping[str, Any] | None,
) -> BatchRequest:
    """Return a validated request.

    Raises
    ------
    RequestError
        With every fault of the call.
    """
    faults = [
        *find_count_faults("batch_size", batch_size),
        *find_count_faults("max_workers", max_workers),
        *find_flag_faults(trusted=trusted),
        *find_columns_faults(columns),
    ]
    if not is_one_of(data_format, (None, *DATA_FORMATS)):
        allowed = f"one of {', '.join(DATA_FORMATS)}, or None for the format of each suffix"
        faults.append(Fault("data_format", describe_value(data_format), allowed))
        data_format = None
    files = _collect(faults, "input", lambda: find_files(input, storage_options, sized=False))
    target = _collect(faults, "output", lambda: resolve_target(output, storage_options))
    located = _collect(
        faults,
        "",
        lambda: locate_model(model, trusted=trusted is True, storage_options=storage_options),
    )
    # A folder of input files may contain the folder of the outputs.
    files = files and [file for file in files if not _is_output(file, target)]
    if files == []:
        faults.append(Fault("input", "", "it has only outputs of an earlier prediction"))
    formats = [data_format or format_of_file(file) for file in files or ()]
    unknown = [file.url for file, name in zip(files or (), formats, strict=True) if not name]
    if unknown:
        shown = ", ".join(unknown[:3]) + ", ..." * (len(unknown) > 3)
        allowed = f"one of {', '.join(DATA_FORMATS)}, as the suffix of {shown} does not name one"
        faults.append(Fault("data_format", "None", allowed))
    faults += _find_output_faults(target)
    check(faults)
    if located is None or target is None or not files:
        raise AssertionError("a fault is missing")
    found = load_found(located)  # last, because it may take seconds
    names = None if columns is None else tuple(columns)
    return BatchRequest(
        found, tuple(files), target, tuple(formats), int(batch_size), int(max_workers), names
    )


def _collect(faults: list[Fault], where: str, work: Any) -> Any:
    """Return what a function returns; None and its faults if it raises a RequestError."""
    try:
        return work()
    except RequestError as error:
        faults += [
            Fault(where or each.where, each.asked, each.allowed, each.advice)
            for each in error.faults
        ]
        return None


def _is_output(file: File, target: Target | None) -> bool:
    """Return whether a file is an output in the folder of the outputs."""
    folder, _, name = file.path.rpartition("/")
    is_inside = target is not None and folder == target.path
    return is_inside and name.startswith((RESULTS, ERRORS))


def find_columns_faults(columns: Any) -> list[Fault]:
    """Return a fault if columns are neither None nor names."""
    is_list = isinstance(columns, list | tuple) and len(columns) > 0
    if columns is None or (is_list and all(isinstance(name, str) for name in columns)):
        return []
    return [Fault("columns", describe_value(columns), "a list of names of columns, or None")]


def _find_output_faults(target: Target | None) -> list[Fault]:
    if target is None:
        return []
    faults = [
        Fault("output", each.asked, each.allowed, each.advice) for each in location_faults(target)
    ]
    if target.store.protocol == "memory" and get_active_client() is not None:
        allowed = "a path or URL that the workers share; memory:// is separate in each process"
        faults.append(Fault("output", repr(target.url), allowed))
    if target.store.local and StoreFiles(target.store).is_file(target.path):
        faults.append(Fault("output", repr(target.url), "a folder; it is a file"))
    return faults


def find_finished(request: BatchRequest) -> set[int]:
    """Return the indexes of files whose outputs exist; record the request if it is new.

    Raises
    ------
    RequestError
        If the folder has outputs of another request; the message says how they differ.
    """
    store_files = StoreFiles(request.output.store)
    record_path = f"{request.output.path}/{RECORD}"
    record = json.dumps(request.to_record(), indent=1).encode()
    old = store_files.get(record_path)
    names = set(store_files.list_files(request.output.path))
    if old is None:
        others = sorted(name for name in names if name.startswith((RESULTS, ERRORS)))
        if others:
            allowed = f"a folder without outputs of another program, such as {others[0]}"
            check([Fault("output", repr(request.output.url), allowed, "choose a new folder")])
        try:
            store_files.put_new(record_path, record)
        except FileExistsError:  # another process has begun meanwhile
            old = store_files.get(record_path)
    if old is not None and old != record:
        raise RequestError([_describe_difference(request, old)])
    results = {request.output_path(RESULTS, index): index for index in range(len(request.files))}
    return {
        results[path]
        for path in (f"{request.output.path}/{name}" for name in names)
        if path in results
    }


def _describe_difference(request: BatchRequest, old: bytes) -> Fault:
    try:
        recorded = json.loads(old)
        new = json.loads(json.dumps(request.to_record()))
        changed = [text for part, text in _PARTS.items() if recorded[part] != new[part]]
        details = _describe_inputs(recorded["inputs"], new["inputs"])
    except (ValueError, KeyError, TypeError) as error:
        problem = f"has a damaged {RECORD}; choose another folder"
        raise StorageError(request.output.url, problem) from error
    differences = ", ".join(changed) + details
    return Fault(
        "output",
        repr(request.output.url),
        f"a folder for this request; it has outputs of another one, which differs in {differences}",
        "choose another folder, or remove this one to predict everything again",
    )


def _describe_inputs(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> str:
    """Return one difference of the lists of input files; empty if they are equal."""
    before, after = ({url: rest for url, *rest in inputs} for inputs in (old, new))
    for url in before.keys() | after.keys():
        if before.get(url) != after.get(url):
            change = "changed" if url in before and url in after else "not in both"
            return f" ({url} is {change})" if change == "not in both" else f" ({url} has changed)"
    return ""
