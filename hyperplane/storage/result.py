"""The result of a save."""

from __future__ import annotations

from dataclasses import dataclass

from hyperplane.core.html_output import make_bar, make_file_link, make_link, make_output, make_rows
from hyperplane.core.text_tables import as_text
from hyperplane.core.units import format_bytes, plural


@dataclass(frozen=True)
class SaveResult:
    """The result of :func:`hyperplane.save`.

    Parameters
    ----------
    url : str
        The saved output, without secrets.
    files : int
        Files of the output; those of the shard if a shard was saved.
    rows : int or None
        Rows, records, or elements in them; None if they are not counted.
    nbytes : int
        Bytes of the files.
    written : int
        Files that were written; the others existed with the same content.
    complete : bool
        Whether all shards are saved, so that the output is visible.
    published : bool
        Whether this save has changed the visible output, for example by removing files.
    seconds : float
        Duration of the save.
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
        """Whether files were written, or the visible output has changed."""
        return self.written > 0 or self.published

    def as_rows(self) -> list[tuple[str, str]]:
        """Return labels and values for display."""
        rows = ""
        if self.rows is not None:
            rows = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'} in "
        written = "nothing, as the same content was already saved"
        if self.changed:
            written = f"{plural(self.written, 'file')} in {self.seconds:.1f} s"
        lines = [
            ("saved", self.url),
            ("content", f"{rows}{plural(self.files, 'file')}, {format_bytes(self.nbytes)}"),
            ("written", written),
        ]
        if not self.complete:
            lines.append(("missing", "other shards; readers see the output when all are saved"))
        return lines

    def __str__(self) -> str:
        return as_text(self.as_rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        is_address = "://" in self.url
        link = make_link(self.url) if is_address else make_file_link(self.url)
        rows: list[tuple[str, str]] = []
        for label, text in self.as_rows():
            if label == "saved":
                rows.append((label, link))
            elif label == "written" and self.changed and self.files:
                rows.append((label, make_bar(self.written / self.files, text, "hp-good")))
            else:
                rows.append((label, text))
        return make_output(make_rows(rows))
