"""Files on this machine of an attempt whose program runs on another one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hyperplane.core.artifact_reports import LINE_MARKER, SUFFIX, split_reports
from hyperplane.jobs.execution.artifact_recording import REPORTS_SUFFIX
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.notebook import extract_notebook
from hyperplane.jobs.runners.usage_lines import split_usage, sum_usage
from hyperplane.jobs.step_wrapper import PREFACE_SUFFIX, USAGE_SUFFIX


def _is_of_store(report: bytes) -> bool:
    """Whether a report is of an object in a store, or of the output of the job."""
    try:
        document = json.loads(report)
        return isinstance(document, dict) and not document.get("local")
    except (ValueError, RecursionError):
        return False


class RemoteAttemptFiles:
    """Start, log and exit code of one attempt; ``system`` is the name of its scheduler."""

    def __init__(self, command: AttemptCommand, system: str) -> None:
        self._command, self._system = command, system

    def exit_code(self) -> int | None:
        """Return the recorded exit code."""
        try:
            return int(self._command.file(".exit").read_text())
        except (OSError, ValueError):
            return None

    def end_time(self) -> float:
        """Return the end time of the container; 0 while it is unknown."""
        with suppress(OSError):
            return self._command.file(".exit").stat().st_mtime
        return 0.0

    def started_as(self) -> str:
        """Return the name of what runs the attempt, such as a pod; empty before the start."""
        try:
            return self._command.file(".pid").read_text()
        except OSError:
            return ""

    def record_start(self, name: str, at: float) -> None:
        """Record what runs the attempt, and since when."""
        if not self.started_as():
            # The log replaces the messages on why the attempt does not run yet.
            self.restart_log()
            self._write(".pid", name.encode(), at)

    def record_end(self, code: int, at: float | None = None) -> None:
        """Record how and when the attempt ended."""
        self._write(".exit", str(code).encode(), at)

    def write_status(self, message: str) -> None:
        """Write to the log why the attempt does not run yet, replacing the previous message."""
        text = f"waiting for {self._system}: {message}\n"
        self._write(".log", self._preface() + text.encode())

    def restart_log(self) -> None:
        """Begin the log anew, such as before all lines of a container are copied again."""
        self._write(".log", self._preface())

    def append_line(self, message: str) -> None:
        """Append a line to the log."""
        with self._command.file(".log").open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"\n{message}\n")

    def _preface(self) -> bytes:
        """Return the first lines of the log, which the container does not have."""
        try:
            return self._command.file(PREFACE_SUFFIX).read_bytes()
        except OSError:
            return b""

    def extract_notebook(self) -> bool:
        """Move the executed notebook from the log to its file; return False if it is not there."""
        try:
            output = Path(self._command.file(".notebook").read_text())
            log = self._command.file(".log").read_bytes()
        except OSError:  # a step of another kind
            return True
        text, notebook = extract_notebook(log)
        if text != log:
            self._write(".log", text)
        if notebook is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_bytes(notebook)
        return notebook is not None

    def extract_reports(self) -> None:
        """Move reports on what the step has saved from the log to their file.

        Only of objects in stores: a path would be one of the container, not of this machine.
        """
        with suppress(OSError):  # a full disk: what was saved is not attached
            log = self._command.file(".log").read_bytes()
            if LINE_MARKER.encode() not in log:
                return
            kept, reports = split_reports(log.split(b"\n"))
            self.save_reports(reports)
            self._write(".log", b"\n".join(kept))

    def save_reports(self, reports: Sequence[bytes]) -> None:
        """Replace the reports of the attempt by those that its log has."""
        folder = self._command.file(REPORTS_SUFFIX)
        folder.mkdir(mode=0o700, exist_ok=True)
        draft = folder / "log.draft"
        draft.write_bytes(b"".join(each + b"\n" for each in filter(_is_of_store, reports)))
        draft.replace(folder / f"log{SUFFIX}")

    def extract_usage(self) -> None:
        """Move what the program of the step took from the log to its file, if it is there."""
        with suppress(OSError):  # a full disk: the attempt has no figures
            kept, figures = split_usage(self._command.file(".log").read_bytes())
            if figures:
                self._write(USAGE_SUFFIX, sum_usage(figures).encode())
                self._write(".log", kept)

    def _write(self, suffix: str, content: bytes, at: float | None = None) -> None:
        """Write a file through a draft and a rename."""
        draft = self._command.file(f"{suffix}.draft")
        draft.write_bytes(content)
        if at is not None:
            os.utime(draft, (at, at))
        draft.replace(self._command.file(suffix))
