"""Commands of a small Slurm that runs batch jobs on this machine at once.

``install(folder)`` writes ``sbatch``, ``squeue`` and ``scancel``; their jobs are there, too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


def install(folder: Path) -> None:
    """Write the commands; the caller adds the folder to PATH."""
    for name in ("sbatch", "squeue", "scancel"):
        words = [sys.executable, __file__, name, str(folder)]
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (folder / name).chmod(0o755)


def sbatch(folder: Path, options: dict[str, str], names: list[str]) -> str:
    """Start the script of the standard input, and return its number."""
    assert not names, "the script comes from the standard input"
    number = str(100 + len(list(folder.glob("*.job"))))
    log = options["output"].replace("%%", "%").replace("\\\\", "\\")
    file = folder / f"{number}.sh"
    file.write_text(sys.stdin.read())
    # As Slurm's daemon, it outlives a signal to all processes of the job.
    text = f"trap : TERM; sh {file}; code=$?; echo $code > {folder}/{number}.draft; "
    text += f"mv {folder}/{number}.draft {folder}/{number}.code"
    with Path(log).open("ab") as output:
        process = subprocess.Popen(
            ["sh", "-c", text], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    stored = {"name": options["job-name"], "group": process.pid}
    (folder / f"{number}.job").write_text(json.dumps(stored))
    return number


def squeue(folder: Path, options: dict[str, str], names: list[str]) -> str:
    """Return the lines of jobs: of all that are named, or of those that run."""
    numbers = options.get("jobs", "").split(",") if "jobs" in options else None
    lines = []
    for file in sorted(folder.glob("*.job")):
        state = _state(folder, file.stem)
        if file.stem in numbers if numbers is not None else state == "RUNNING":
            fields = {"i": file.stem, "T": state, "l": "UNLIMITED", "r": "None"}
            fields["j"] = _read(folder, file.stem)["name"]
            lines.append(re.sub("%(.)", lambda match, f=fields: f[match[1]], options["format"]))
    return "\n".join(lines)


def scancel(folder: Path, options: dict[str, str], names: list[str]) -> str:
    """Signal or kill running jobs; none is ever pending."""
    for number in names:
        if _state(folder, number) != "RUNNING" or options.get("state") == "PENDING":
            continue
        signal_number = signal.SIGTERM if options.get("signal") == "TERM" else signal.SIGKILL
        if signal_number == signal.SIGKILL:
            (folder / f"{number}.cancelled").touch()
        with suppress(ProcessLookupError):
            os.killpg(_read(folder, number)["group"], signal_number)
    return ""


def _state(folder: Path, number: str) -> str:
    if (folder / f"{number}.cancelled").exists():
        return "CANCELLED"
    try:
        return "FAILED" if int((folder / f"{number}.code").read_text()) else "COMPLETED"
    except OSError:
        return "RUNNING"


def _read(folder: Path, number: str) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((folder / f"{number}.job").read_text())
    return stored


def main(name: str, folder: str, *words: str) -> None:
    """Run a command."""
    pairs = [word.removeprefix("--").partition("=") for word in words if word.startswith("--")]
    options = {key: value for key, _, value in pairs}
    names = [word for word in words if not word.startswith("--")]
    commands = {"sbatch": sbatch, "squeue": squeue, "scancel": scancel}
    if text := commands[name](Path(folder), options, names):
        sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
