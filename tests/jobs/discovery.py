"""Validation of requests and answers against the discovery documents of Google's services."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from hyperplane.platforms.gcp.session import describe_service

Object = dict[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}


class DiscoveryError(Exception):
    """A request or an answer is not one of the service."""


class Method(NamedTuple):
    """A method of a service; ``short`` is its name with the resource, such as "objects.get"."""

    short: str
    document: str
    description: Object

    @property
    def request(self) -> Object | None:
        """Schema of the body; None for one that is not JSON."""
        is_upload = self.description.get("supportsMediaUpload")
        return None if is_upload else self.description.get("request")

    @property
    def response(self) -> Object:
        """Schema of the answer."""
        schema: Object = self.description["response"]
        return schema


def find_method(
    service: str, verb: str, path: str, query: dict[str, list[str]]
) -> tuple[Method, dict[str, str]]:
    """Return the method of a request and the values of its path; raise DiscoveryError."""
    for pattern, method in _list_methods(service):
        match = pattern.fullmatch(path)
        if match and method.description["httpMethod"] == verb:
            _check_query(method, query)
            values = {name: unquote(text) for name, text in match.groupdict().items()}
            for name, text in values.items():
                expected = method.description["parameters"][name].get("pattern")
                # A name may have encoded slashes, as the package of an image has.
                raw = match[name]
                if expected and not re.fullmatch(expected, raw):
                    raise DiscoveryError(f"{name} = {text!r} does not match {expected}")
            return method, values
    raise DiscoveryError(f"{service} has no method {verb} {path}")


def _check_query(method: Method, query: dict[str, list[str]]) -> None:
    common = describe_service(method.document)["parameters"]
    own = method.description.get("parameters", {})
    for name, values in query.items():
        schema = own.get(name) or common.get(name)
        if schema is None:
            raise DiscoveryError(f'Invalid JSON payload received. Unknown name "{name}"')
        if len(values) > 1 and not schema.get("repeated"):
            raise DiscoveryError(f"{name} is given twice")
        for text in values:
            if schema["type"] == "integer" and not text.isdecimal():
                raise DiscoveryError(f"{name} = {text!r} is not an integer")
            if "enum" in schema and text not in schema["enum"]:
                raise DiscoveryError(f"{name} = {text!r} is not one of {schema['enum']}")
    for name, schema in own.items():
        if schema.get("required") and schema["location"] == "query" and name not in query:
            raise DiscoveryError(f"{name} is missing")


@cache
def _list_methods(service: str) -> list[tuple[re.Pattern[str], Method]]:
    document = describe_service(service)
    found: list[tuple[re.Pattern[str], Method]] = []

    def visit(resources: Object) -> None:
        for name, resource in resources.items():
            for each, description in resource.get("methods", {}).items():
                method = Method(f"{name}.{each}", service, description)
                paths = [document["servicePath"] + description["path"]]
                if "mediaUpload" in description:
                    upload = description["mediaUpload"]["protocols"]["simple"]["path"]
                    paths.append(upload.lstrip("/"))
                found.extend((_compile(path, description), method) for path in paths)
            visit(resource.get("resources", {}))

    visit(document["resources"])
    # Names of resources would match the verb after a colon, as in models/flights:listVersions.
    return sorted(found, key=lambda each: ":" not in each[1].description["path"])


def _compile(path: str, description: Object) -> re.Pattern[str]:
    """Return the expression of a path with parameters such as {bucket} or {+name}."""
    text = re.escape(path).replace(r"\{", "{").replace(r"\}", "}").replace(r"\+", "+")

    def replace(match: re.Match[str]) -> str:
        pattern = description["parameters"][match[2]].get("pattern", "").strip("^$")
        inner = pattern if match[1] and pattern else (".+" if match[1] else "[^/]+")
        return f"(?P<{match[2]}>{inner})"

    return re.compile(re.sub(r"\{(\+?)(\w+)\}", replace, text))


def validate(service: str, schema: Object, value: Any, where: str) -> None:
    """Raise DiscoveryError unless a value is one of a schema of a service."""
    if "$ref" in schema:
        schema = describe_service(service)["schemas"][schema["$ref"]]
    kind = schema.get("type", "object")
    if kind == "any":
        return
    is_wrong_bool = isinstance(value, bool) and kind != "boolean"
    if not isinstance(value, _TYPES[kind]) or is_wrong_bool:
        raise DiscoveryError(f"{where}: {value!r} is not of type {kind}")
    if "enum" in schema and value not in schema["enum"]:
        raise DiscoveryError(f"{where}: {value!r} is not one of {schema['enum']}")
    if schema.get("format") in ("int64", "uint64") and not re.fullmatch(r"-?\d+", str(value)):
        raise DiscoveryError(f"{where}: {value!r} is not an integer")
    if schema.get("format") == "google-duration" and not re.fullmatch(r"\d+(\.\d+)?s", value):
        raise DiscoveryError(f"{where}: {value!r} is not a duration")
    if kind == "array":
        for index, each in enumerate(value):
            validate(service, schema["items"], each, f"{where}[{index}]")
    if kind == "object":
        _validate_fields(service, schema, value, where)


def _validate_fields(service: str, schema: Object, value: Object, where: str) -> None:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, each in value.items():
        inner = properties.get(name, others)
        if inner is None:
            text = f'Invalid JSON payload received. Unknown name "{name}" at {where}'
            raise DiscoveryError(text)
        validate(service, inner, each, f"{where}.{name}")
