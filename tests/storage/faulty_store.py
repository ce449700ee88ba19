"""Configuration, journal, and test handle of a store with injected faults."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import store_errors
from faulty_objects import Objects

#: ``create`` is a put that fails if the object exists; ``part`` belongs to a multipart upload.
WRITES = ("put", "create", "part", "copy", "remove")


@dataclass(frozen=True)
class Faults:
    """Faults of the store for all processes; rates are fractions of calls, from 0 to 1."""

    #: Whose errors are raised: ``plain``, ``gcs`` or ``s3``.
    like: str = "plain"
    seed: int = 0
    #: Rate of calls that fail without effect, and their kinds in ``store_errors.TRANSIENT``.
    transient: float = 0.0
    kinds: tuple[str, ...] = store_errors.TRANSIENT
    #: Seconds in the header Retry-After, which only ``s3`` passes on.
    retry_after: int | None = None
    #: Rate of writes whose answer is lost: the caller gets a transient error, or with ``gcs`` and
    #: ``s3`` a FileExistsError for an object that it has created itself.
    lost: float = 0.0
    #: One of ``store_errors.PERMANENT``: 404 for every call, the others for writes.
    permanent: str | None = None
    #: Rate of slow calls, and their delay in seconds.
    slow: float = 0.0
    slow_seconds: float = 0.0
    #: Writes per second above which the answer is 429.
    writes_per_second: int | None = None
    #: Seconds for which a new object can be read but is neither listed nor has an ``info``.
    listing_delay: float = 0.0
    #: The write at which the process is killed, from 1, and whether ``before`` or ``after`` it.
    kill: tuple[int, str] | None = None
    #: Paths to which the faults apply, without the protocol.
    only: str = "*"


@dataclass(frozen=True)
class Call:
    """One call to the store in the journal."""

    op: str
    path: str
    began: float
    seconds: float
    #: ``ok``, the kind of the error, ``lost``, ``killed``, or the class of another error.
    outcome: str
    #: Bytes that were read or written.
    size: int = 0
    #: Number of this operation on this path, from 1.
    attempt: int = 1
    pid: int = field(default_factory=os.getpid)


class Store:
    """Test handle of a faulty store."""

    url = "faulty://bucket"

    def __init__(self, root: Path, **faults: Any) -> None:
        for folder in ("objects", "counts", "drafts"):
            (root / folder).mkdir(parents=True)
        self.root = root
        self.options = {"root": str(root)}
        self.faults = Faults()
        self.set(**faults)

    def set(self, **faults: Any) -> None:
        """Change the faults, from the next call of any process on."""
        self.faults = replace(self.faults, **faults)
        draft = self.root / "drafts" / "faults"
        draft.write_text(json.dumps(asdict(self.faults)))
        draft.replace(self.root / "faults.json")

    def journal(self) -> list[Call]:
        """Return every finished call."""
        path = self.root / "journal.jsonl"
        # Another process may be writing the last line, which is then incomplete.
        whole, _, _ = (path.read_text() if path.exists() else "").rpartition("\n")
        return [Call(**json.loads(line)) for line in whole.splitlines()]

    def writes(self) -> list[Call]:
        """Return the calls that changed an object, also those whose answer was lost."""
        done = ("ok", "lost")
        return [call for call in self.journal() if call.op in WRITES and call.outcome in done]

    def objects(self) -> dict[str, bytes]:
        """Return the content of the store regardless of faults."""
        return Objects(self.root).all()
