"""``hyperplane doctor``: check whether clusters can start on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from hyperplane import config
from hyperplane.cli.output import JsonOption, show, write_json
from hyperplane.clusters.registry import ENGINES
from hyperplane.core.units import plural

if TYPE_CHECKING:
    from hyperplane.cli.doctor_checks import CheckResult

_STYLES = {"ok": "green", "off": "dim", "warning": "yellow", "wrong": "bold red"}


def doctor(as_json: JsonOption = False) -> None:
    """Check versions, machine, engines and configuration.

    Exit code: 1 if a problem prevents clusters from starting, 2 for an invalid configuration.
    """
    # Imported here, as importing `packaging` takes a tenth of the start of every command.
    from hyperplane.cli import doctor_checks

    all_checks = (
        doctor_checks.check_versions,
        doctor_checks.check_machine,
        doctor_checks.check_spill_folder,
        doctor_checks.check_engines,
        # Before the configuration, whose plan also reads and cleans the list of clusters.
        doctor_checks.check_clusters,
        doctor_checks.check_configuration,
    )
    findings = [finding for check in all_checks for finding in check()]
    faults = config.faults(ENGINES)
    count = {
        state: sum(finding.state == state for finding in findings) for state in ("wrong", "warning")
    }
    if as_json:
        write_json(
            {
                "good": not count["wrong"],
                "findings": [asdict(finding) for finding in findings],
                "faults": [asdict(fault) for fault in faults],
            }
        )
    else:
        _show(findings)
        typer.echo(f"\n{count['wrong']} wrong, {plural(count['warning'], 'warning')}")
        if any(finding.state == "off" for finding in findings):
            typer.echo("An engine that is off is optional; the text beside it says what it needs.")
    if faults:
        raise typer.Exit(2)
    if count["wrong"]:
        raise typer.Exit(1)


def _show(findings: list[CheckResult]) -> None:
    grid = Table.grid(padding=(0, 2))
    for _ in ("state", "subject"):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        grid.add_row(
            Text(finding.state, style=_STYLES[finding.state]), finding.subject, finding.text
        )
        if finding.advice:
            grid.add_row("", "", f"-> {finding.advice}")
    show(grid)
