"""Records of what the steps of jobs have saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

#: Kinds of artifacts. An output is the text that a step has set as the output of its job.
TABLE, PICTURE, NOTEBOOK, TEXT = "table", "picture", "notebook", "text"
ARRAY, MODEL, FOLDER, FILE, OUTPUT = "array", "model", "folder", "file", "output"
#: Longest name of an artifact, and longest path or URL, in characters.
LONGEST_NAME, LONGEST_URL = 512, 4096
#: Largest number that databases store.
LARGEST_NUMBER = 2**63 - 1
#: Kinds by the suffix of a name.
_KINDS = {
    TABLE: ("parquet", "csv", "tsv", "orc", "avro", "arrow", "feather"),
    PICTURE: ("png", "jpg", "jpeg", "gif", "webp", "svg"),
    NOTEBOOK: ("ipynb",),
    TEXT: ("txt", "md", "json", "jsonl", "ndjson", "yaml", "yml", "log", "toml", "xml", "sql"),
    ARRAY: ("npy", "npz", "zarr", "nc", "h5"),
    MODEL: ("skops", "joblib", "pkl", "keras", "pt", "pt2", "onnx", "ubj"),
}
_KIND_BY_SUFFIX = {suffix: kind for kind, suffixes in _KINDS.items() for suffix in suffixes}


@dataclass(frozen=True)
class Artifact:
    """What a step of a job has saved: a file, a folder, or the output of the job.

    Parameters
    ----------
    job_id, step : str
        Job and step; the step is empty for an output that was set from outside of the job.
    chunk : int
        Index of the chunk; -1 for a step without chunks, and for an output in several shards.
    attempt : int
        Number of the attempt, from 1; that of the last shard for an output in several shards.
    name : str
        Name, unique among those of a step, or of a chunk of it.
    kind : str
        ``table``, ``picture``, ``notebook``, ``text``, ``array``, ``model``, ``folder``, ``file``
        or ``output``.
    format : str
        Suffix of the file or of the files of a folder, such as ``parquet``; may be empty.
    url : str
        Absolute path, or URL without secrets; empty for an output.
    size : int or None
        Bytes; None if unknown.
    rows, files : int or None
        Rows, and number of files; None if they are not counted.
    created : float
        When it was saved, in seconds since 1970.
    is_folder : bool
        Whether it is a folder.
    shard : int or None
        Index of the shard of a record that describes one shard.
    identity : str
        Identity of the file when the attempt ended, by which another one in its place is
        recognized; of a folder, that of one file in it; of an output, its checksum.
    """

    job_id: str
    step: str
    chunk: int
    attempt: int
    name: str
    kind: str
    format: str = ""
    url: str = ""
    size: int | None = None
    rows: int | None = None
    files: int | None = 1
    created: float = 0.0
    is_folder: bool = False
    shard: int | None = None
    identity: str = field(default="", repr=False)

    @property
    def is_local(self) -> bool:
        """Whether it is a file or folder of a disk."""
        return self.url.startswith("/")

    def as_dict(self) -> dict[str, Any]:
        """Return the public fields for JSON."""
        names = (
            "job_id", "step", "chunk", "attempt", "name", "kind", "format", "url", "size", "rows",
            "files", "created", "is_folder",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def find_suffix(name: str) -> str:
    """Return the suffix of a name in lower case, without its dot.

    Examples
    --------
    >>> find_suffix("figures/Delay.PNG"), find_suffix("data.tar.gz"), find_suffix("Makefile")
    ('png', 'gz', '')
    """
    return PurePosixPath(name).suffix.lower().removeprefix(".")


def kind_of_file(name: str) -> str:
    """Return the kind of a file by its suffix.

    Examples
    --------
    >>> kind_of_file("figures/delay.png"), kind_of_file("delays.parquet"), kind_of_file("page.html")
    ('picture', 'table', 'file')
    """
    return _KIND_BY_SUFFIX.get(find_suffix(name), FILE)


def describe_origin(artifact: Artifact) -> str:
    """Return the step, and the chunk of it, that has saved an artifact.

    Examples
    --------
    >>> describe_origin(Artifact("3f0c", "years", 7, 1, "a.csv", "table"))
    'years [7]'
    """
    chunk = f" [{artifact.chunk}]" if artifact.chunk >= 0 else ""
    return f"{artifact.step}{chunk}"


def combine_shards(records: Mapping[Any, list[Artifact]]) -> list[Artifact]:
    """Return one artifact for each list of records of shards of the same output."""
    combined = []
    for shards in records.values():
        last = max(shards, key=lambda each: each.created)
        fields = {**vars(last), "chunk": -1, "shard": None}
        for figure in ("size", "rows", "files"):
            values = [getattr(each, figure) for each in shards]
            total = None if None in values else sum(values)
            fields[figure] = None if total is None or total > LARGEST_NUMBER else total
        combined.append(Artifact(**fields))
    return combined
