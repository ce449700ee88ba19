"""Recorded results of the checks of dask-ml on each stack of packages, from which its page is made.

The tests write those of the installed stack with HYPERPLANE_WRITE_GOLDEN=1, at full scale, and
compare without.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ml.dask_ml_checks import CHECKS, FAULTS

FILE = Path(__file__).with_name("dask_ml_results.json")
OLDEST = Path(__file__).parents[1] / "oldest.txt"
PACKAGES = ("dask", "pandas", "scikit-learn", "dask-ml")
STACKS = ("oldest", "newest")
WORKS, CORRECTED = "works", "corrected"


def read_results() -> dict[str, Any]:
    """Return for each stack the versions of its packages, and a result for each check."""
    results: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return results


def installed_stack() -> tuple[str, dict[str, str]]:
    """Return the name of the installed stack, and the versions of its packages."""
    oldest = dict(re.findall(r"^([\w-]+)==(\S+)$", OLDEST.read_text(), re.MULTILINE))
    is_oldest = all(version(name) == each for name, each in oldest.items())
    return "oldest" if is_oldest else "newest", {name: version(name) for name in PACKAGES}


def write_results(results: dict[str, str]) -> None:
    """Record the results of the installed stack."""
    stack, versions = installed_stack()
    recorded = read_results() if FILE.exists() else {}
    recorded[stack] = {"packages": versions, "results": results}
    ordered = {name: recorded[name] for name in STACKS if name in recorded}
    FILE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def describe_results(uncorrected: dict[str, str], corrected: dict[str, str]) -> dict[str, str]:
    """Return the result of each check from its errors without and with the corrections."""
    results = {}
    for name in CHECKS:
        if name in corrected:
            results[name] = corrected[name].partition(":")[0]  # the type of the error
        else:
            results[name] = CORRECTED if name in uncorrected else WORKS
    return results


def make_table() -> str:
    """Return the results of both stacks as a Markdown table."""
    recorded = read_results()
    titles = ["computation", *(_title(stack, recorded[stack]["packages"]) for stack in STACKS)]
    lines = [f"| {' | '.join(titles)} | fault, or what to use |", "|---" * 4 + "|"]
    for name, check in CHECKS.items():
        results = [recorded[stack]["results"][name] for stack in STACKS]
        cells = [
            each if each in (WORKS, CORRECTED) else f"use another ({each})" for each in results
        ]
        remark = check.instead or (FAULTS[check.corrected] if CORRECTED in results else "")
        lines.append(f"| {_format_name(name)} | {' | '.join(cells)} | {remark} |")
    passing = [
        sum(each in (WORKS, CORRECTED) for each in recorded[stack]["results"].values())
        for stack in STACKS
    ]
    counts = " | ".join(f"{count} of {len(CHECKS)}" for count in passing)
    return "\n".join([*lines, f"| **works, or is corrected** | {counts} | |"])


def _title(stack: str, packages: dict[str, str]) -> str:
    return f"{stack}: Dask {packages['dask']}, pandas {packages['pandas']}"


def _format_name(name: str) -> str:
    code, rest = re.fullmatch(r"([^ ,]+)(.*)", name).groups()  # type: ignore[union-attr]
    return f"`{code}`{rest}".replace("||", "\\|\\|")
