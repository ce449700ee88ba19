"""Items of a Map state: from its input or from a file, singly or in batches."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import fsspec

from hyperplane.asl.errors import RUNTIME, StateError
from hyperplane.asl.execution import Execution, ExecutionFrame
from hyperplane.asl.input_output import read_whole_number, select_path
from hyperplane.asl.payload_templates import fill_template
from hyperplane.asl.strict_json import json_type, parse_json
from hyperplane.core.errors import Fault, StorageError, check
from hyperplane.core.public_calls import check_call
from hyperplane.objectstore.listing import resolve_location
from hyperplane.objectstore.reachability import StoreUnreachable, monitor_request
from hyperplane.objectstore.redaction import redact_url

_DELIMITERS = {"COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "SPACE": " ", "TAB": "\t"}


@check_call
def object_reader(root: str) -> Callable[[Any], str]:
    """Create a task for ``ItemReader`` that reads objects from files.

    Parameters
    ----------
    root : str
        Path or fsspec URL of a folder that has a folder for each bucket.

    Returns
    -------
    callable
        Takes ``{"Bucket": ..., "Key": ...}`` and returns the text of ``root/Bucket/Key``.

    Raises
    ------
    RequestError
        If ``root`` is not text, is empty or contains a null character.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> (root / "sales").mkdir()
    >>> _ = (root / "sales" / "june.jsonl").write_text('{"n": 1}')
    >>> object_reader(str(root))({"Bucket": "sales", "Key": "june.jsonl"})
    '{"n": 1}'
    """
    value: Any = root
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        check([Fault("root", ascii(value)[:80], "the path or fsspec URL of a folder")])

    def read(parameters: Any) -> str:
        names = [parameters.get(name) for name in ("Bucket", "Key")]
        if not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"Bucket and Key are {names[0]!r} and {names[1]!r}, not names")
        path = "/".join(names)
        if ".." in path.split("/") or path.startswith("/"):
            raise ValueError(f"{path} is outside the folder of the objects")
        url = f"{root}/{path}"
        store = resolve_location(url).store
        try:
            with (
                monitor_request(store, url),
                fsspec.open(url, "rt", encoding="utf-8-sig", newline="") as file,
            ):
                return str(file.read())
        except StoreUnreachable as error:
            raise StorageError(redact_url(url), str(error)) from error

    return read


def read_items(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> list[Any]:
    """Return the items of ``ItemReader`` or ``ItemsPath``."""
    if "ItemReader" in state:
        return _call_reader(execution, state["ItemReader"], data, context, frame)
    items = select_path(state, "ItemsPath", data, context)
    if not isinstance(items, list):
        path = state.get("ItemsPath", "$")
        problem = f"{json_type(items)}, not an array"
        raise StateError(RUNTIME, f"the value at ItemsPath {path} is {problem}")
    return items


def _call_reader(
    execution: Execution, reader: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> list[Any]:
    config = reader.get("ReaderConfig", {})
    parameters = fill_template(reader.get("Parameters", {}), data, context)
    task = execution.tasks.find(reader["Resource"])
    if task is None:
        raise StateError(RUNTIME, execution.tasks.describe_missing(reader["Resource"]))
    try:
        path = (*frame.path, context["State"]["Name"])
        content = execution.call_task(task, parameters, None, frame.scope, path)
        items = parse_items(content, config) if isinstance(content, str) else content
        if not isinstance(items, list):
            raise ValueError(f"the reader returned {json_type(items)}, not an array")
    except (StateError, ValueError) as error:
        raise StateError("States.ItemReaderFailed", str(error)) from error
    return items[: read_whole_number(config, "MaxItems", data, context, least=1)]


def parse_items(text: str, config: dict[str, Any]) -> list[Any]:
    r"""Parse the items in the text of a file; ``config`` is the ``ReaderConfig``.

    Raises ValueError if the text does not have the configured format.

    Examples
    --------
    >>> config = {"InputType": "CSV", "CSVHeaderLocation": "FIRST_ROW"}
    >>> parse_items("city,trips\nBergen,3\n", config)
    [{'city': 'Bergen', 'trips': '3'}]
    """
    kind = config.get("InputType", "JSON")
    if kind == "JSONL":
        return [parse_json(line) for line in text.split("\n") if line.strip()]
    if kind == "CSV":
        return _parse_csv(text, config)
    items = parse_json(text)
    if not isinstance(items, list):
        raise ValueError(f"the file contains {json_type(items)}, not an array")
    return items


def _parse_csv(text: str, config: dict[str, Any]) -> list[Any]:
    delimiter = _DELIMITERS[config.get("CSVDelimiter", "COMMA")]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} is not CSV: {error}") from None
    headers = config.get("CSVHeaders")
    if headers is None:
        headers, rows = (rows[0], rows[1:]) if rows else ([], [])
    for number, row in enumerate(rows, 1):
        if len(row) != len(headers):
            raise ValueError(f"row {number} has {len(row)} values for {len(headers)} columns")
    return [dict(zip(headers, row, strict=True)) for row in rows]


def make_batches(
    batcher: dict[str, Any], payloads: list[Any], data: Any, context: Any
) -> list[dict[str, Any]]:
    """Group items into batches, each with the ``BatchInput``."""
    max_items = read_whole_number(batcher, "MaxItemsPerBatch", data, context, least=1)
    max_bytes = read_whole_number(batcher, "MaxInputBytesPerBatch", data, context, least=1)
    base: dict[str, Any] = {}
    if "BatchInput" in batcher:
        base["BatchInput"] = fill_template(batcher["BatchInput"], data, context)
    empty = size = _json_size({**base, "Items": []})
    batches: list[dict[str, Any]] = []
    for payload in payloads:
        added = _json_size(payload) + 1  # the comma
        if max_bytes is not None and empty + added - 1 > max_bytes:
            cause = f"a batch of one item has {empty + added - 1} bytes, more than {max_bytes}"
            raise StateError("States.DataLimitExceeded", cause)
        full = bool(batches) and len(batches[-1]["Items"]) == max_items
        if not batches or full or (max_bytes is not None and size + added - 1 > max_bytes):
            batches.append({**base, "Items": []})
            size = empty
        batches[-1]["Items"].append(payload)
        size += added
    return batches


def _json_size(value: Any) -> int:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode(errors="surrogatepass"))  # JSON may have half a surrogate pair
