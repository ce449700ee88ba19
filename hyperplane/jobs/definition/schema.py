"""JSON Schema of pipeline files, for editors that validate while typing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.definition.step_rules import AUTO, TRAIN_FIELDS
from hyperplane.jobs.definition.tasks import CONTENT_KEYS, TASK_KEYS, TYPES
from hyperplane.spec.request import ClusterRequest

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_RESOURCES = {
    "pool": "Name of a pool; auto for one that earlier runs of the step or its forecast choose.",
    "cores": "Cores.",
    "ram_gb": "Memory in GB (10**9 bytes).",
    "gpus": "GPUs.",
}
_TASK = {
    "name": "Unique name of the step.",
    "type": "Type of program.",
    "notebook_path": "The notebook, relative to the root.",
    "py_path": "The Python script, relative to the root.",
    "js_path": "The JavaScript file, relative to the root.",
    "bash_script_path": "The bash script, relative to the root.",
    "command": "Program and arguments, run without a shell.",
    "module_name": "Module of a training program, such as trainer.task.",
    "notebook_output_path": "Path of the executed notebook.",
    "kernel": "The Jupyter kernel that executes the notebook.",
    "depends_on": "Names of steps that it waits for; [] for none.",
    "working_dir": "Working folder, relative to the root.",
    "port": "Port on which the program serves.",
    "chunks": "Number of chunks, with chunk_id.",
    "foreach": "Run once per value, with item and chunk_id.",
    "max_parallel": "Maximum concurrent chunks.",
    "retries": "Number of retries.",
    "timeout": "Maximum seconds of an attempt, or text such as 10m.",
    "resources": "Resources that it needs.",
    "cluster": "Arguments of initialize_cluster for the step's cluster.",
    "forecast": "The collection that it computes, FILE.py:NAME, which sizes pool: auto at first.",
    "env": "Environment variables; no secrets.",
    "secrets": "Names of secrets, not values.",
    "output": "URL of the data that its chunks save.",
    "more_memory": "Factor by which memory grows with each retry after running out of it.",
    "split": "Factor by which the parameter 'pieces' grows after each lack of memory.",
    "gang": "Number of processes, which start together and end together.",
    "step_functions": "Task of AWS Step Functions that replaces the program in an export.",
    "package_path": "Folder of the training program's package, relative to the root.",
    "job_dir": "Folder or URL for the training program's --job-dir.",
    "worker_count": "Workers besides the primary.",
    "parameter_server_count": "Parameter servers.",
    "evaluator_count": "Evaluators.",
    "args": "Arguments of the training program.",
    "tuning": "Hyper-parameters of the training program and their trials, as of Cloud ML.",
}
_PIPELINE = {
    "name": "Name of the pipeline.",
    "requirements": "Requirements file for pip.",
    "working_dir": "Working folder of the steps, relative to the root.",
    "job_type": "Label of the job; older files name the type of machine here.",
}


class _FileSchema(GenerateJsonSchema):
    """Schema without null and defaults, because files omit keys that have no value."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _schema(
    model: type[BaseModel], descriptions: Mapping[str, str], fields: Mapping[str, str]
) -> dict[str, Any]:
    """Return the schema of a mapping whose keys set fields of a model."""
    field_schemas = model.model_json_schema(schema_generator=_FileSchema)["properties"]
    properties = {
        key: {"description": text, **field_schemas[fields.get(key, key)]}
        for key, text in descriptions.items()
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _type_schema(kind: str) -> dict[str, Any]:
    """Return the required and forbidden keys of a task of one kind."""
    others = {key: False for key in CONTENT_KEYS.values() if key != CONTENT_KEYS[kind]}
    if kind != "notebook":
        others |= {"notebook_output_path": False, "kernel": False}
    if kind != "train":
        others |= dict.fromkeys(TRAIN_FIELDS, False)
    if kind in ("notebook", "train"):
        others["gang"] = False
    names = [name for name, other in TYPES.items() if other == kind]
    return {
        "if": {"properties": {"type": {"enum": names}}, "required": ["type"]},
        "then": {"required": [CONTENT_KEYS[kind]], "properties": others},
    }


def _task_schema() -> dict[str, Any]:
    resources = _schema(Resources, _RESOURCES, {})
    resources["dependentSchemas"] = {"pool": {"properties": {"cores": False, "ram_gb": False}}}
    arguments = {"enum": sorted({*ClusterRequest.model_fields, "ram_gb_proc"})}
    task = _schema(Step, _TASK, TASK_KEYS)
    for key, form in {
        "type": {"enum": list(TYPES)},
        "command": {**task["properties"]["command"], "minItems": 1},
        "resources": resources,
        "cluster": {"type": "object", "propertyNames": arguments},
        "step_functions": {
            "type": "object",
            "additionalProperties": False,
            "required": ["resource"],
            "properties": {
                "resource": {"type": "string", "pattern": r"^arn:aws[a-z-]*:[a-z0-9-]+:\S+$"},
                "parameters": {"type": "object"},
            },
        },
    }.items():
        task["properties"][key] = {"description": _TASK[key], **form}
    with_chunks = {"anyOf": [{"required": ["chunks"]}, {"required": ["foreach"]}]}
    with_memory = {
        "anyOf": [
            {"required": ["cluster"]},
            {"required": ["resources"], "properties": {"resources": {"required": ["ram_gb"]}}},
        ],
        "properties": {"retries": {"not": {"const": 0}}},
    }
    automatic = {"required": ["pool"], "properties": {"pool": {"const": AUTO}}}
    with_auto = {
        "anyOf": [
            {"required": [key], "properties": {key: automatic}} for key in ("resources", "cluster")
        ],
        "properties": {"type": {"not": {"const": "train"}}, "gang": False},
    }
    return {
        **task,
        "required": ["name", "type"],
        "allOf": [_type_schema(kind) for kind in CONTENT_KEYS],
        "dependentSchemas": {
            "chunks": {"properties": {"foreach": False}},
            **dict.fromkeys(("max_parallel", "output", "split"), with_chunks),
            "more_memory": with_memory,
            "forecast": with_auto,
        },
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
    pipeline = {**_schema(Pipeline, _PIPELINE, {}), "required": ["name", "tasks"]}
    pipeline["properties"]["tasks"] = {"type": "array", "minItems": 1, "items": _task_schema()}
    return {
        "$schema": DIALECT,
        "title": "A hyperplane pipeline",
        "type": "object",
        "required": ["pipeline"],
        "additionalProperties": False,
        "properties": {"pipeline": pipeline},
    }
