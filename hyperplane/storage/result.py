"""What a save did."""

from __future__ import annotations

from dataclasses import dataclass

from hyperplane.tables import as_html, as_text
from hyperplane.units import format_bytes, plural


@dataclass(frozen=True)
class SaveResult:
    """What was saved.

    Parameters
    ----------
    url : str
        Where; without what may be secret in it.
    files : int
        Files that hold it.
    rows : int or None
        Rows, records or elements in them; None where that means nothing.
    nbytes : int
        Bytes of the files.
    written : int
        Files among them that were written; the others were there with the same content.
    complete : bool
        Whether all shards are there, so that others see it.
    published : bool
        Whether others see something else now, as also when files were only left out.
    seconds : float
        How long it took.
    """

    url: str
    files: int
    rows: int | None
    nbytes: int
    written: int = 0
    complete: bool = True
    published: bool = False
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        """Whether anything was written, or others see something else."""
        return self.written > 0 or self.published

    def as_rows(self) -> list[tuple[str, str]]:
        """Labels and texts."""
        rows = "" if self.rows is None else f"{self.rows:,} rows in "
        how = "nothing was written: it was there already"
        if self.changed:
            how = f"{self.written:,} of them written in {self.seconds:.1f} s"
        found = [
            ("saved", self.url),
            ("holds", f"{rows}{plural(self.files, 'file')}, {format_bytes(self.nbytes)}"),
            ("done", how),
        ]
        if not self.complete:
            found.append(("waits", "for other shards; others see it when all are there"))
        return found

    def __str__(self) -> str:
        return as_text(self.as_rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.as_rows())
