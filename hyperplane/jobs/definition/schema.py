"""JSON Schema of pipeline files, for editors that validate while typing."""

from __future__ import annotations

from typing import Any

from hyperplane.jobs.definition import fields
from hyperplane.jobs.definition.tasks import CONTENT_KEYS, TYPES
from hyperplane.spec.request import ClusterRequest

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PRINTABLE = r"[^\u0000-\u001f\u007f-\u009f\u2028\u2029]"
_ONE_LINE = rf"^{_PRINTABLE}*\S{_PRINTABLE}*$"
_NAME = {"type": "string", "maxLength": fields.MAX_NAME_LENGTH, "pattern": _ONE_LINE}
_PATH = {"type": "string", "pattern": _ONE_LINE}
#: Read as text whether quoted or not; editors see numbers and booleans.
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


def _integer(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _describe(description: str, form: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, **form}


_PATH_DESCRIPTIONS = {
    "notebook": "The notebook, relative to the root.",
    "python": "The Python script, relative to the root.",
    "javascript": "The JavaScript file, relative to the root.",
    "bash": "The bash script, relative to the root.",
    "command": "Program and arguments, run without a shell.",
}


def _resources() -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "pool": _describe("Name of a pool.", _NAME),
            "cores": _describe("Cores.", {"type": "number", "exclusiveMinimum": 0}),
            "ram_gb": _describe("Memory in GB (10**9 bytes).", _GB),
            "gpus": _describe("GPUs.", _integer(0, 1_000)),
        },
        "dependentSchemas": {"pool": {"properties": {"cores": False, "ram_gb": False}}},
    }


def _task_properties() -> dict[str, Any]:
    words = {"type": "array", "minItems": 1, "items": _SCALAR}
    contents = {
        key: _describe(_PATH_DESCRIPTIONS[kind], words if kind == "command" else _PATH)
        for kind, key in CONTENT_KEYS.items()
    }
    names = {"type": "array", "items": _NAME}
    arguments = {"enum": sorted({*ClusterRequest.model_fields, "ram_gb_proc"})}
    values = {"type": "array", "minItems": 1, "maxItems": fields.MAX_CHUNKS, "items": _SCALAR}
    secrets = {"type": "array", "items": {"type": "string", "pattern": fields.SECRET_PATTERN}}
    variable = rf"^(?!{fields.RESERVED_PREFIX})" + fields.VARIABLE_PATTERN.removeprefix("^")
    variables = {
        "type": "object",
        "propertyNames": {"pattern": variable},
        "additionalProperties": _SCALAR,
    }
    return {
        "name": _describe("Unique name of the step.", _NAME),
        "type": _describe("Type of program.", {"enum": list(TYPES)}),
        **contents,
        "notebook_output_path": _describe("Path of the executed notebook.", _PATH),
        "kernel": _describe("The Jupyter kernel that executes the notebook.", _NAME),
        "depends_on": _describe("Names of steps that it waits for; [] for none.", names),
        "working_dir": _describe("Working folder, relative to the root.", _PATH),
        "port": _describe("Port on which it serves.", _integer(1, fields.MAX_PORT)),
        "chunks": _describe("Number of chunks, with chunk_id.", _integer(1, fields.MAX_CHUNKS)),
        "foreach": _describe("Run once per value, with item and chunk_id.", values),
        "max_parallel": _describe("Maximum concurrent chunks.", _integer(1, fields.MAX_CHUNKS)),
        "retries": _describe("Number of retries.", _integer(0, fields.MAX_RETRIES)),
        "timeout": _describe("Maximum seconds of an attempt, or text such as 10m.", _SECONDS),
        "resources": _describe("Resources that it needs.", _resources()),
        "cluster": _describe(
            "Arguments of initialize_cluster for the step's Dask cluster.",
            {"type": "object", "propertyNames": arguments},
        ),
        "env": _describe("Environment variables; no secrets.", variables),
        "secrets": _describe("Names of secrets, not values.", secrets),
        "output": _describe("URL of what its chunks save.", _PATH),
        "more_memory": _describe(
            "Factor by which memory grows with each retry after running out of it.",
            {"type": "number", "exclusiveMinimum": 1, "maximum": fields.MAX_GROWTH},
        ),
        "split": _describe(
            "Factor by which pieces grows with each retry after running out of memory.",
            _integer(2, fields.MAX_PIECES),
        ),
    }


def _type_schema(kind: str) -> dict[str, Any]:
    """Return the required and forbidden keys of a task of one kind."""
    others = {key: False for key in CONTENT_KEYS.values() if key != CONTENT_KEYS[kind]}
    if kind != "notebook":
        others |= {"notebook_output_path": False, "kernel": False}
    names = [name for name, other in TYPES.items() if other == kind]
    return {
        "if": {"properties": {"type": {"enum": names}}, "required": ["type"]},
        "then": {"required": [CONTENT_KEYS[kind]], "properties": others},
    }


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a pipeline file.

    It accepts only strictly correct files, and cannot check properties of the whole file: unique
    names, cycles, existing files.

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
        "properties": _task_properties(),
        "allOf": [_type_schema(kind) for kind in CONTENT_KEYS],
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
            "name": _describe("Name of the pipeline.", _NAME),
            "requirements": _describe("Requirements file for pip.", _PATH),
            "working_dir": _describe("Working folder of the steps, relative to the root.", _PATH),
            "job_type": _describe("Type of machine; a label.", _NAME),
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
