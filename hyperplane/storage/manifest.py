"""The manifest of a saved output: every part with its size, rows, and checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hyperplane.core.errors import StorageError
from hyperplane.objectstore.locations import Location

#: Version of the JSON document; other versions are rejected.
FORMAT_VERSION = 1


@dataclass(frozen=True)
class ManifestEntry:
    """One part file of an output.

    Parameters
    ----------
    name : str
        Path relative to the output's folder.
    size : int
        Bytes.
    sha256 : str
        Checksum of the bytes; empty if another library wrote them.
    rows : int or None
        Rows, records, or elements; None if they are not counted.
    shard : int or None
        Index of the shard that wrote the part.
    schema : str
        Columns and types of a table, serialized by :mod:`~hyperplane.storage.part_schemas`; empty
        if unknown.
    """

    name: str
    size: int
    sha256: str = ""
    rows: int | None = None
    shard: int | None = None
    schema: str = ""

    @property
    def content(self) -> tuple[Any, ...]:
        """The fields that are equal for parts of equal content."""
        return (self.size, self.sha256, self.rows, self.schema)


@dataclass(frozen=True)
class Manifest:
    """All parts of a saved output.

    Parameters
    ----------
    format : str
        Format of the parts.
    kind : str
        Kind of the saved object, so that the same kind is loaded.
    parts : tuple of ManifestEntry
        In order.
    shards : int or None
        Number of shards that wrote it.
    details : dict
        State of the commit protocol, of appends, and of shards.
    """

    format: str
    kind: str
    parts: tuple[ManifestEntry, ...]
    shards: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int | None:
        """Rows of all parts; None if unknown for any part."""
        rows = [part.rows for part in self.parts]
        return None if None in rows else sum(row for row in rows if row is not None)

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def key(self) -> str:
        """Hash of the names of the parts, by which the manifest of a listed folder is found."""
        return hash_names(part.name for part in self.parts)

    def has_same_content(self, other: Manifest | None) -> bool:
        """Return whether another manifest has equal parts in the same order, by checksum."""
        return (
            other is not None
            and self.format == other.format
            and all(part.sha256 for part in self.parts)
            and [part.content for part in self.parts] == [part.content for part in other.parts]
        )

    def to_json(self) -> str:
        """Return the manifest as JSON. Parts refer to their schema by its index."""
        fields = asdict(self)
        schemas = list(dict.fromkeys(part.schema for part in self.parts if part.schema))
        for part in fields["parts"]:
            part["schema"] = schemas.index(part["schema"]) if part["schema"] else None
        return json.dumps({"form": FORMAT_VERSION, **fields, "schemas": schemas}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Parse a manifest.

        Raises
        ------
        ValueError
            If the text is not a manifest, or was written by a newer version of hyperplane.
        """
        fields = json.loads(text)
        version = fields.pop("form", None) if isinstance(fields, dict) else None
        if version != FORMAT_VERSION:
            raise ValueError(f"form is {version!r}, expected {FORMAT_VERSION}")
        try:
            schemas = fields.pop("schemas", ())
            parts = tuple(_parse_entry(part, schemas) for part in fields.pop("parts"))
            return cls(parts=parts, **fields)
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"its fields are not those of a manifest: {error!r}") from error


def parse_manifest_file(data: bytes, file: Location) -> Manifest:
    """Return the manifest in a file.

    Raises
    ------
    StorageError
        If it is damaged, or was written by a newer version of hyperplane.
    """
    try:
        return Manifest.from_json(data)
    except ValueError as error:
        raise StorageError(
            file.url,
            f"is not a manifest that this version of hyperplane can read ({error}): a newer "
            "version wrote it, or it is damaged; upgrade hyperplane, or remove the output and the "
            "folder of this file, and save it again",
        ) from error


def _parse_entry(fields: Mapping[str, Any], schemas: Sequence[str]) -> ManifestEntry:
    """Return a manifest entry from its JSON fields."""
    number = fields.get("schema")
    return ManifestEntry(**{**fields, "schema": "" if number is None else schemas[number]})


def hash_names(names: Iterable[str]) -> str:
    """Return a hash of the names of parts, independent of their order."""
    text = "\n".join(sorted(names))
    return hashlib.sha256(text.encode()).hexdigest()[:24]
