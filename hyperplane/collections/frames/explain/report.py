"""Result of ``explain``: findings, as text, table and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from hyperplane.core.text_tables import as_html, as_text
from hyperplane.core.units import plural


@dataclass(frozen=True)
class Finding:
    """One expensive step of a collection.

    Parameters
    ----------
    kind : str
        Kind of the finding; does not change between releases.
    step : str
        Description of the step, such as ``inner join on 'user'``.
    size : str
        Partitions and bytes in memory of the data, as text; "unknown size" if not known.
    why : str
        Why the step is expensive.
    instead : str
        Code to write instead, with ``df``, ``left`` and ``right`` for the collections.
    persist : str
        Code that persists the result of the step; empty if that does not help.
    moved : int or None
        Bytes of the affected data, such as those that the step moves or computes again; None if
        unknown, or not estimated for this kind.
    """

    kind: str
    step: str
    size: str
    why: str
    instead: str
    persist: str = ""
    moved: int | None = None

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the finding as rows of label and text, with one line of code per row."""
        yield self.kind, f"{self.step}: {self.size}"
        yield "  why", self.why
        for label, code in (("  instead", self.instead), ("  persist", self.persist)):
            for line in code.splitlines():
                yield label, line
                label = ""


@dataclass(frozen=True, repr=False)
class Explanation:
    """The expensive steps of collections, in the order that :func:`explain` documents.

    Parameters
    ----------
    findings : tuple of Finding
        The expensive steps; empty if there are none.
    steps : int
        Number of steps of the collections as written; shared steps count once.
    partitions : int
        Number of partitions of all sources.
    notes : tuple of str
        Parts of the collections that could not be examined, and the type of the error.
    """

    findings: tuple[Finding, ...]
    steps: int
    partitions: int
    notes: tuple[str, ...] = field(default=())

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the findings, in the same order."""
        return tuple(finding.kind for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line with the numbers of findings, steps and partitions."""
        result = (
            plural(len(self.findings), "finding") if self.findings else "nothing expensive found"
        )
        return f"{result}: {plural(self.steps, 'step')}, {plural(self.partitions, 'partition')}"

    def rows(self) -> list[tuple[str, str]]:
        """Return the findings and notes as rows of label and text."""
        return [
            *(row for finding in self.findings for row in finding.rows()),
            *(("note", note) for note in self.notes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as values that JSON supports."""
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
