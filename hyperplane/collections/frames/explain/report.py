"""What `explain` says: findings, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from hyperplane.tables import as_html, as_text
from hyperplane.units import plural


@dataclass(frozen=True)
class Finding:
    """One expensive step of a collection.

    Parameters
    ----------
    kind : str
        Name of the kind of finding; does not change between releases.
    step : str
        The step in the user's terms, such as ``merge on 'user'``.
    size : str
        What is known of the data there: partitions and bytes.
    why : str
        What makes it expensive.
    instead : str
        Code to write instead; ``df``, ``left`` and ``right`` stand for the collections there.
    persist : str
        Code that keeps the result of the step, where that helps; may be empty.
    moved : int or None
        Bytes that the step moves or computes again, where they are known.
    """

    kind: str
    step: str
    size: str
    why: str
    instead: str
    persist: str = ""
    moved: int | None = None

    def rows(self) -> Iterator[tuple[str, str]]:
        """The finding as labels and texts, one line of code a row."""
        yield self.kind, f"{self.step}: {self.size}"
        yield "  why", self.why
        for label, code in (("  instead", self.instead), ("  persist", self.persist)):
            for line in code.splitlines():
                yield label, line
                label = ""


@dataclass(frozen=True, repr=False)
class Explanation:
    """The expensive steps of collections, the dearest first.

    Parameters
    ----------
    findings : tuple of Finding
        The expensive steps; empty where there are none.
    steps : int
        Steps of the collections as they were written, shared ones counted once.
    partitions : int
        Partitions of all sources that they read.
    notes : tuple of str
        What could not be looked at, and why.
    """

    findings: tuple[Finding, ...]
    steps: int
    partitions: int
    notes: tuple[str, ...] = field(default=())

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the findings, in their order."""
        return tuple(finding.kind for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line: how many findings, steps and partitions."""
        found = (
            plural(len(self.findings), "finding") if self.findings else "nothing expensive found"
        )
        return f"{found}: {plural(self.steps, 'step')}, {plural(self.partitions, 'partition')}"

    def rows(self) -> list[tuple[str, str]]:
        """What is shown, as labels and texts."""
        return [
            *(row for finding in self.findings for row in finding.rows()),
            *(("note", note) for note in self.notes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The explanation as JSON-able values."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "steps": self.steps,
            "partitions": self.partitions,
            "notes": list(self.notes),
            "summary": self.summary,
        }

    def __str__(self) -> str:
        return "\n".join(filter(None, [as_text(self.rows()), self.summary]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html([*self.rows(), ("summary", self.summary)])
