"""What was saved: every part with its size, its rows and its checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Of the manifest's form; a newer one is not read.
FORMAT_VERSION = 1


@dataclass(frozen=True)
class ManifestEntry:
    """One file.

    Parameters
    ----------
    name : str
        Below the folder.
    size : int
        Bytes.
    sha256 : str
        Of its bytes; empty where another library wrote them.
    rows : int or None
        Rows, records or elements; None where that means nothing.
    shard : int or None
        The shard that wrote it.
    schema : str
        Columns and types of a table, as :mod:`~hyperplane.storage.part_schemas` has them; empty
        where they are not known.
    """

    name: str
    size: int
    sha256: str = ""
    rows: int | None = None
    shard: int | None = None
    schema: str = ""

    @property
    def content(self) -> tuple[Any, ...]:
        """What two parts of the same content have in common."""
        return (self.size, self.sha256, self.rows, self.schema)


@dataclass(frozen=True)
class Manifest:
    """All parts of something that was saved.

    Parameters
    ----------
    format : str
        Of the parts.
    kind : str
        What was saved, so that the same comes back.
    parts : tuple of Part
        In order.
    shards : int or None
        How many shards it was made of.
    details : dict
        What the format has to know.
    """

    format: str
    kind: str
    parts: tuple[ManifestEntry, ...]
    shards: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int | None:
        """Rows of all parts, where all are known."""
        rows = [part.rows for part in self.parts]
        return None if None in rows else sum(row for row in rows if row is not None)

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def key(self) -> str:
        """Follows from the names of the parts: whoever lists them finds their manifest."""
        return hash_names(part.name for part in self.parts)

    def same_content(self, other: Manifest | None) -> bool:
        """Whether other parts hold the same, byte for byte, in the same order."""
        return (
            other is not None
            and self.format == other.format
            and all(part.sha256 for part in self.parts)
            and [part.content for part in self.parts] == [part.content for part in other.parts]
        )

    def to_json(self) -> str:
        """As it is stored: each different schema once, and its number with the parts."""
        fields = asdict(self)
        schemas = list(dict.fromkeys(part.schema for part in self.parts if part.schema))
        for part in fields["parts"]:
            part["schema"] = schemas.index(part["schema"]) if part["schema"] else None
        return json.dumps({"form": FORMAT_VERSION, **fields, "schemas": schemas}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """A stored manifest.

        Raises
        ------
        ValueError
            When it is none, or one of a newer version of hyperplane.
        """
        fields = json.loads(text)
        if not isinstance(fields, dict) or fields.pop("form", None) != FORMAT_VERSION:
            raise ValueError("no manifest that this version of hyperplane can read")
        schemas = fields.pop("schemas", ())
        parts = tuple(_parse_entry(part, schemas) for part in fields.pop("parts"))
        return cls(parts=parts, **fields)


def _parse_entry(fields: Mapping[str, Any], schemas: Sequence[str]) -> ManifestEntry:
    number = fields.get("schema")
    return ManifestEntry(**{**fields, "schema": "" if number is None else schemas[number]})


def hash_names(names: Iterable[str]) -> str:
    """A key of the names of parts, in whatever order they are listed."""
    listed = "\n".join(sorted(names))
    return hashlib.sha256(listed.encode()).hexdigest()[:24]
