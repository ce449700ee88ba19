"""Findings of the checks before a start, and the report that lists them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from hyperplane.core.errors import Fault, PreflightError
from hyperplane.core.html_output import make_chip, make_output, make_rows
from hyperplane.core.text_tables import as_text
from hyperplane.core.units import plural

#: ``fault``: the start or the job certainly fails; ``warning``: it may fail; ``unchecked``: it
#: cannot be known before the start.
State = Literal["fault", "warning", "unchecked", "ok"]
_ORDER: tuple[State, ...] = ("fault", "warning", "unchecked", "ok")


@dataclass(frozen=True)
class PreflightFinding:
    """Result of one check before a start.

    Parameters
    ----------
    subject : str
        What was checked, such as ``"versions"``.
    state : {"fault", "warning", "unchecked", "ok"}
        The result.
    text : str
        What is wrong with which value, or what is right.
    advice : str
        What to do; may be empty.
    """

    subject: str
    state: State
    text: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.subject}: {self.text}{advice}"


@dataclass(frozen=True, repr=False)
class PreflightReport:
    """What :func:`hyperplane.preflight` found, faults first; prints as a table.

    Parameters
    ----------
    plan_name, engine : str
        Name of the cluster, and of the engine that would start it.
    findings : tuple of PreflightFinding
        Results of all checks.
    seconds : float
        Time that the checks took.
    """

    plan_name: str
    engine: str
    findings: tuple[PreflightFinding, ...]
    seconds: float

    @property
    def faults(self) -> tuple[PreflightFinding, ...]:
        """Findings with which the start, or the job, certainly fails."""
        return self._select("fault")

    @property
    def warnings(self) -> tuple[PreflightFinding, ...]:
        """Findings with which the job may fail."""
        return self._select("warning")

    @property
    def unchecked(self) -> tuple[PreflightFinding, ...]:
        """What cannot be known before the start, or had no answer in time."""
        return self._select("unchecked")

    def raise_for_faults(self) -> None:
        """Raise a PreflightError with all faults, if there are any.

        Raises
        ------
        PreflightError
            With one :class:`hyperplane.Fault` for each of :attr:`faults`.
        """
        if self.faults:
            faults = [
                Fault(finding.subject, "", finding.text, finding.advice) for finding in self.faults
            ]
            raise PreflightError(self.engine, faults)

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the printed report: states and texts."""
        ordered = sorted(self.findings, key=lambda finding: _ORDER.index(finding.state))
        title = f"{self.plan_name} (engine {self.engine}): {self._summary()}"
        return [("preflight", title), *((finding.state, str(finding)) for finding in ordered)]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can represent."""
        return {
            "name": self.plan_name,
            "engine": self.engine,
            "good": not self.faults,
            "seconds": round(self.seconds, 3),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def _select(self, state: State) -> tuple[PreflightFinding, ...]:
        return tuple(finding for finding in self.findings if finding.state == state)

    def _summary(self) -> str:
        counts = [
            plural(len(self.faults), "fault"),
            plural(len(self.warnings), "warning"),
            f"{len(self.unchecked)} not checked",
        ]
        return f"{', '.join(counts)}, in {self.seconds:.1f} s"

    def __str__(self) -> str:
        return as_text(self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        style = "hp-bad" if self.faults else "hp-warn" if self.warnings else "hp-good"
        (label, title), *rows = self.rows()
        return make_output(make_rows([(label, make_chip(title, style)), *rows]))
