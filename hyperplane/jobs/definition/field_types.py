"""Types of the fields of a step, with their limits."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from hyperplane.core.units import is_boolean
from hyperplane.jobs.definition import credential_detection
from hyperplane.spec.request import Gigabytes, Seconds, check_integer

MAX_NAME_LENGTH = 128
MAX_CHUNKS = 100_000
MAX_RETRIES = 10
MAX_PIECES = 1_000
MAX_GROWTH = 16
MAX_PORT = 65_535
MAX_RANKS = 1_000

#: Prefix of the variables that the job sets.
RESERVED_PREFIX = "HYPERPLANE_JOB_"

_MODULE = r"^[^\W\d]\w*(\.[^\W\d]\w*)*$"
_TARGET = r"^.*\S.*\.py:[A-Za-z_][A-Za-z0-9_]*$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_SECRET = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)?$"  # noqa: S105 - a pattern

_CONTROL_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}


def _reject_text(value: object) -> object:
    # Pydantic would read "010" as 10, and YAML 1.1 as 8.
    if isinstance(value, str):
        raise ValueError("a number without quotes or leading zeros")
    return value


def _require_number(value: object) -> object:
    if is_boolean(value) or isinstance(value, bytes | bytearray | memoryview):
        raise ValueError("a number")
    return value


def _is_one_line(text: str) -> bool:
    return not any(unicodedata.category(character) in _CONTROL_CATEGORIES for character in text)


def _check_name(text: str) -> str:
    text = text.strip()
    if not 1 <= len(text) <= MAX_NAME_LENGTH or not _is_one_line(text):
        raise ValueError(
            f"text of 1 to {MAX_NAME_LENGTH} characters in one line, without control characters"
        )
    return text


def _check_path(text: str) -> str:
    if not text.strip() or not _is_one_line(text):
        raise ValueError("a path in one line, without control characters")
    return text


def _check_optional_path(text: str) -> str:
    return _check_path(text) if text else text


def _check_text(text: str) -> str:
    # Environment variables and arguments cannot contain NUL.
    if "\0" in text:
        raise ValueError("text without the character NUL")
    return text


def _check_item(text: str) -> str:
    if not text:
        raise ValueError("text that is not empty")
    return _check_text(text)


def _check_variable(name: str) -> str:
    if not re.fullmatch(_VARIABLE, name):
        raise ValueError("a name of letters, digits and underscores, not beginning with a digit")
    if name.upper().startswith(RESERVED_PREFIX):
        raise ValueError(f"a name not beginning with {RESERVED_PREFIX}, which is reserved")
    return name


def _check_secret(name: str) -> str:
    if credential_detection.detect_credential(name):
        raise ValueError("the name of a secret, not its value")
    if not re.fullmatch(_SECRET, name):
        raise ValueError(
            "the name of an environment variable, or of a file below "
            "/etc/hyperplane/secrets such as database/password"
        )
    return name


def _check_module(name: str) -> str:
    if not re.fullmatch(_MODULE, name):
        raise ValueError("a module that python -m can run, such as 'trainer.task'")
    return name


def split_target(target: str) -> tuple[str, str]:
    """Return the path and the name of a target ``FILE.py:NAME``.

    Examples
    --------
    >>> split_target("jobs/sales.py:totals")
    ('jobs/sales.py', 'totals')
    """
    path, _, name = target.rpartition(":")
    return path, name


def _check_target(text: str) -> str:
    path, name = split_target(text)
    if not (path.endswith(".py") and name.isascii() and name.isidentifier()):
        allowed = "FILE.py:NAME, a Python program and the name in it of a Dask collection, or of a "
        raise ValueError(f"{allowed}function without arguments that returns one")
    return _check_path(text)


def _check_url(text: str) -> str:
    try:
        password = urlsplit(text).password
    except ValueError:
        raise ValueError("a path or URL") from None
    if password is not None:
        raise ValueError("a URL without a password; put that in the store's options or secrets")
    return _check_path(text)


def _check_items(values: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(values) <= MAX_CHUNKS:
        raise ValueError(f"a list of 1 to {MAX_CHUNKS} values")
    return values


def _text_schema(pattern: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern, **more}


def _number_schema(pattern: str) -> dict[str, Any]:
    """Return the schema of positive numbers, and of text with a unit."""
    return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _text_schema(pattern)]}


_PRINTABLE = r"[^\u0000-\u001f\u007f-\u009f\u2028\u2029]"
_ONE_LINE = rf"^{_PRINTABLE}*\S{_PRINTABLE}*$"
# Values are read as text, quoted or not; for an editor, unquoted ones are numbers or booleans.
_SCALAR = {"type": ["string", "number", "boolean"]}
_ENVIRONMENT = {
    "type": "object",
    "propertyNames": {"pattern": rf"^(?!{RESERVED_PREFIX}){_VARIABLE.removeprefix('^')}"},
    "additionalProperties": _SCALAR,
}
_MEMORY = _number_schema(r"^ *[0-9][0-9_,]*(\.[0-9]*)? *([KkMmGgTtPp][Ii]?)?[Bb]? *$")
_DURATION = _number_schema(r"^[0-9]+(\.[0-9]+)? *[A-Za-z]+$")

# WithJsonSchema: the schema for editors cannot call the functions that check the values.
_Path = WithJsonSchema(_text_schema(_ONE_LINE))
_Scalar = WithJsonSchema(_SCALAR)
Name = Annotated[
    str,
    AfterValidator(_check_name),
    WithJsonSchema(_text_schema(_ONE_LINE, maxLength=MAX_NAME_LENGTH)),
]
PathText = Annotated[str, AfterValidator(_check_path), _Path]
OptionalPath = Annotated[str, AfterValidator(_check_optional_path), _Path]
Text = Annotated[str, AfterValidator(_check_text), _Scalar]
Item = Annotated[str, AfterValidator(_check_item), _Scalar]
Items = Annotated[
    tuple[Item, ...],
    AfterValidator(_check_items),
    Field(json_schema_extra={"minItems": 1, "maxItems": MAX_CHUNKS}),
]
_Variable = Annotated[str, AfterValidator(_check_variable)]
Environment = Annotated[dict[_Variable, Text], WithJsonSchema(_ENVIRONMENT)]
Secret = Annotated[str, AfterValidator(_check_secret), WithJsonSchema(_text_schema(_SECRET))]
Module = Annotated[
    str,
    AfterValidator(_check_module),
    WithJsonSchema(_text_schema(r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")),
]
Target = Annotated[str, AfterValidator(_check_target), WithJsonSchema(_text_schema(_TARGET))]
Url = Annotated[str, AfterValidator(_check_url), _Path]
Memory = Annotated[Gigabytes, WithJsonSchema(_MEMORY)]
Duration = Annotated[Seconds, WithJsonSchema(_DURATION)]
_Plain = BeforeValidator(_reject_text)
# The limits come first: after a BeforeValidator pydantic's JSON Schema has "ge", not "minimum".
_Whole = BeforeValidator(check_integer)
Port = Annotated[int, Field(ge=1, le=MAX_PORT), _Whole, _Plain]
Chunks = Annotated[int, Field(ge=1, le=MAX_CHUNKS), _Whole, _Plain]
Ranks = Annotated[int, Field(ge=1, le=MAX_RANKS), _Whole, _Plain]
Processes = Annotated[int, Field(ge=0, le=MAX_RANKS), _Whole, _Plain]
Retries = Annotated[int, Field(ge=0, le=MAX_RETRIES), _Whole, _Plain]
Gpus = Annotated[int, Field(ge=0, le=1_000), _Whole, _Plain]
Pieces = Annotated[int, Field(ge=2, le=MAX_PIECES), _Whole, _Plain]
Cores = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_require_number), _Plain]
Factor = Annotated[float, Field(gt=1, le=MAX_GROWTH), BeforeValidator(_require_number), _Plain]
