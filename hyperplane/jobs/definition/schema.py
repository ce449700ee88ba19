"""The format of a pipeline file as JSON Schema, for editors that check while one types."""

from __future__ import annotations

from typing import Any

from hyperplane.jobs.definition import fields
from hyperplane.jobs.definition.tasks import CONTENT_KEYS, TYPES
from hyperplane.spec.request import ClusterRequest

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SEEN = r"[^\u0000-\u001f\u007f-\u009f\u2028\u2029]"
_ONE_LINE = rf"^{_SEEN}*\S{_SEEN}*$"
_NAME = {"type": "string", "maxLength": fields.LONGEST_NAME, "pattern": _ONE_LINE}
_PATH = {"type": "string", "pattern": _ONE_LINE}
#: Read as text whether quoted or not; an editor sees numbers and truth values.
_SCALAR = {"type": ["string", "number", "boolean"]}
_GB = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^ *[0-9][0-9_,]*(\.[0-9]*)? *([KkMmGgTtPp][Ii]?)?[Bb]? *$"},
    ]
}
_SECONDS = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *[A-Za-z]+$"},
    ]
}


def _whole(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _described(description: str, form: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, **form}


_WHAT = {
    "notebook": "The notebook, relative to the root.",
    "python": "The Python script, relative to the root.",
    "javascript": "The JavaScript file, relative to the root.",
    "bash": "The bash script, relative to the root.",
    "command": "Program and arguments; no shell reads them.",
}


def _resources() -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "pool": _described("Name of a pool.", _NAME),
            "cores": _described("Cores.", {"type": "number", "exclusiveMinimum": 0}),
            "ram_gb": _described("Memory in GB (10**9 bytes).", _GB),
            "gpus": _described("GPUs.", _whole(0, 1_000)),
        },
        "dependentSchemas": {"pool": {"properties": {"cores": False, "ram_gb": False}}},
    }


def _properties() -> dict[str, Any]:
    words = {"type": "array", "minItems": 1, "items": _SCALAR}
    contents = {
        key: _described(_WHAT[kind], words if kind == "command" else _PATH)
        for kind, key in CONTENT_KEYS.items()
    }
    names = {"type": "array", "items": _NAME}
    arguments = {"enum": sorted({*ClusterRequest.model_fields, "ram_gb_proc"})}
    values = {"type": "array", "minItems": 1, "maxItems": fields.MOST_CHUNKS, "items": _SCALAR}
    secrets = {"type": "array", "items": {"type": "string", "pattern": fields.SECRET}}
    variable = rf"^(?!{fields.RESERVED})" + fields.VARIABLE.removeprefix("^")
    variables = {
        "type": "object",
        "propertyNames": {"pattern": variable},
        "additionalProperties": _SCALAR,
    }
    return {
        "name": _described("What the step is called; no two alike.", _NAME),
        "type": _described("What runs it.", {"enum": list(TYPES)}),
        **contents,
        "notebook_output_path": _described("Where the executed notebook is written.", _PATH),
        "kernel": _described("The Jupyter kernel that executes the notebook.", _NAME),
        "depends_on": _described("Steps that it waits for; [] for none.", names),
        "working_dir": _described("Folder that it runs in.", _PATH),
        "port": _described("Port on which it serves.", _whole(1, fields.LARGEST_PORT)),
        "chunks": _described("Times that it runs, with chunk_id.", _whole(1, fields.MOST_CHUNKS)),
        "foreach": _described("It runs once for each value, with item and chunk_id.", values),
        "max_parallel": _described("Chunks that run at one time.", _whole(1, fields.MOST_CHUNKS)),
        "retries": _described("How often it is tried again.", _whole(0, fields.MOST_RETRIES)),
        "timeout": _described("Seconds for one attempt, or text such as 10m.", _SECONDS),
        "resources": _described("What it needs of a machine.", _resources()),
        "cluster": _described(
            "Arguments of initialize_cluster for the cluster that it gets.",
            {"type": "object", "propertyNames": arguments},
        ),
        "env": _described("Variables of the environment; no secrets.", variables),
        "secrets": _described("Names of secrets that it sees; never values.", secrets),
        "output": _described("URL of what its chunks save.", _PATH),
        "more_memory": _described(
            "Factor by which memory grows at each retry after running out of it.",
            {"type": "number", "exclusiveMinimum": 1, "maximum": fields.MOST_GROWTH},
        ),
        "split": _described(
            "Pieces of a chunk that runs again after it ran out of memory.",
            _whole(2, fields.MOST_PIECES),
        ),
    }


def _of_type(kind: str) -> dict[str, Any]:
    """What a task of one kind must have and must not have."""
    others = {key: False for key in CONTENT_KEYS.values() if key != CONTENT_KEYS[kind]}
    if kind != "notebook":
        others |= {"notebook_output_path": False, "kernel": False}
    names = [name for name, other in TYPES.items() if other == kind]
    return {
        "if": {"properties": {"type": {"enum": names}}, "required": ["type"]},
        "then": {"required": [CONTENT_KEYS[kind]], "properties": others},
    }


def json_schema() -> dict[str, Any]:
    """The JSON Schema (Draft 2020-12) of a pipeline file.

    Returns
    -------
    dict
        It accepts files without slips. It cannot tell what is true of a file as a whole: names,
        cycles, files that are there.

    Examples
    --------
    >>> json_schema()["required"]
    ['pipeline']
    """
    fanned = {"anyOf": [{"required": ["chunks"]}, {"required": ["foreach"]}]}
    sized = {
        "anyOf": [
            {"required": ["cluster"]},
            {"required": ["resources"], "properties": {"resources": {"required": ["ram_gb"]}}},
        ],
        "properties": {"retries": {"not": {"const": 0}}},
    }
    task = {
        "type": "object",
        "required": ["name", "type"],
        "additionalProperties": False,
        "properties": _properties(),
        "allOf": [_of_type(kind) for kind in CONTENT_KEYS],
        "dependentSchemas": {
            "chunks": {"properties": {"foreach": False}},
            **dict.fromkeys(("max_parallel", "output", "split"), fanned),
            "more_memory": sized,
        },
    }
    pipeline = {
        "type": "object",
        "required": ["name", "tasks"],
        "additionalProperties": False,
        "properties": {
            "name": _described("What the pipeline is called.", _NAME),
            "requirements": _described("A file of requirements for pip.", _PATH),
            "working_dir": _described("Folder that the steps run in.", _PATH),
            "job_type": _described("A name for the kind of machine.", _NAME),
            "tasks": {"type": "array", "minItems": 1, "items": task},
        },
    }
    return {
        "$schema": DIALECT,
        "title": "A hyperplane pipeline",
        "type": "object",
        "required": ["pipeline"],
        "additionalProperties": False,
        "properties": {"pipeline": pipeline},
    }
