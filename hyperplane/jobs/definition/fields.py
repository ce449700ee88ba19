"""The kinds of values that a step's fields hold, and what each of them may be."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from hyperplane.jobs.definition import credentials
from hyperplane.spec.request import Whole
from hyperplane.units import is_truth_value

LONGEST_NAME = 128
MOST_CHUNKS = 100_000
MOST_RETRIES = 10
MOST_PIECES = 1_000
MOST_GROWTH = 16
LARGEST_PORT = 65_535

#: Variables that the job itself sets.
RESERVED = "HYPERPLANE_JOB_"

#: Patterns that the schema for editors shares.
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
SECRET = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)?$"  # noqa: S105 - a form

_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}


def _no_text(value: object) -> object:
    # Pydantic would read "010" as ten, which YAML has as eight.
    if isinstance(value, str):
        raise ValueError("a number without quotes and leading zeros")
    return value


def _number(value: object) -> object:
    if is_truth_value(value) or isinstance(value, bytes | bytearray | memoryview):
        raise ValueError("a number")
    return value


def _one_line(text: str) -> bool:
    return not any(unicodedata.category(character) in _UNSEEN for character in text)


def _name(text: str) -> str:
    text = text.strip()
    if not 1 <= len(text) <= LONGEST_NAME or not _one_line(text):
        raise ValueError(
            f"text of 1 to {LONGEST_NAME} characters in one line, without control characters"
        )
    return text


def _place(text: str) -> str:
    if not text.strip() or not _one_line(text):
        raise ValueError("a path in one line, without control characters")
    return text


def _content(text: str) -> str:
    return _place(text) if text else text


def _text(text: str) -> str:
    # Neither a variable of the environment nor an argument can hold it.
    if "\0" in text:
        raise ValueError("text without the character NUL")
    return text


def _item(text: str) -> str:
    if not text:
        raise ValueError("text that is not empty")
    return _text(text)


def _variable(name: str) -> str:
    if not re.fullmatch(VARIABLE, name):
        raise ValueError("a name of letters, digits and underscores that begins with no digit")
    if name.upper().startswith(RESERVED):
        raise ValueError(f"a name that does not begin with {RESERVED}: the job sets those")
    return name


def _secret(name: str) -> str:
    if credentials.kind_of(name):
        raise ValueError("the name of a secret, never its value")
    if not re.fullmatch(SECRET, name):
        raise ValueError(
            "the name of a variable of the environment, or of a file below "
            "/etc/hyperplane/secrets such as database/password"
        )
    return name


def _url(text: str) -> str:
    try:
        password = urlsplit(text).password
    except ValueError:
        raise ValueError("a path or URL") from None
    if password is not None:
        raise ValueError("a URL without a password: the store's options or secrets hold it")
    return _place(text)


def _some(values: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(values) <= MOST_CHUNKS:
        raise ValueError(f"a list of 1 to {MOST_CHUNKS} values")
    return values


Name = Annotated[str, AfterValidator(_name)]
Place = Annotated[str, AfterValidator(_place)]
Content = Annotated[str, AfterValidator(_content)]
Text = Annotated[str, AfterValidator(_text)]
Item = Annotated[str, AfterValidator(_item)]
Items = Annotated[tuple[Item, ...], AfterValidator(_some)]
Variable = Annotated[str, AfterValidator(_variable)]
Secret = Annotated[str, AfterValidator(_secret)]
Url = Annotated[str, AfterValidator(_url)]
_Plain = BeforeValidator(_no_text)
Port = Annotated[Whole, Field(ge=1, le=LARGEST_PORT), _Plain]
Chunks = Annotated[Whole, Field(ge=1, le=MOST_CHUNKS), _Plain]
Parallel = Annotated[Whole, Field(ge=1, le=MOST_CHUNKS), _Plain]
Retries = Annotated[Whole, Field(ge=0, le=MOST_RETRIES), _Plain]
Gpus = Annotated[Whole, Field(ge=0, le=1_000), _Plain]
Pieces = Annotated[Whole, Field(ge=2, le=MOST_PIECES), _Plain]
Cores = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_number), _Plain]
Factor = Annotated[float, Field(gt=1, le=MOST_GROWTH), BeforeValidator(_number), _Plain]
