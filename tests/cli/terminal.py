"""Commands as a terminal runs them: in this process, or in a separate session."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import psutil

#: Workers preload no modules, which takes most of a cluster's start and no test here needs.
FEW_IMPORTS = {"DASK_HYPERPLANE__ENGINES__LOCAL__PRELOAD": "[]"}


class Answer:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """The JSON document; other text on standard output is an error."""
        return json.loads(self.out)

    @property
    def text(self) -> str:
        """Both outputs in one line, without frames and colors."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self.out + self.err)
        return " ".join(re.sub("[│╭╮╰╯─]", " ", plain).split())


class Foreground:
    """A command in a separate session, as in another terminal."""

    def __init__(self, *arguments: str) -> None:
        script = "from hyperplane.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "COLUMNS": "80", **FEW_IMPORTS},
        )

    def read_until(self, last: str) -> str:
        """Return the output up to the first line that starts with ``last``."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(200, self.process.kill)
        watchdog.start()
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith(last):
                break
        watchdog.cancel()
        assert lines, self.process.communicate()
        assert lines[-1].startswith(last), (lines, self.process.communicate())
        return "".join(lines)

    def family(self) -> list[psutil.Process]:
        """Return the running processes of its session."""
        found = []
        for process in psutil.process_iter():
            try:
                ours = os.getsid(process.pid) == self.process.pid
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, ProcessLookupError):
                continue
        return found

    def signal(self, number: signal.Signals, *, whole_group: bool) -> None:
        """Send a signal; a terminal sends Ctrl-C to the whole group."""
        if whole_group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def end(self) -> Answer:
        """Wait for its end; return the output that was not read yet."""
        out, err = self.process.communicate(timeout=120)
        return Answer(self.process.returncode, out, err)


Run = Callable[..., Answer]
Begin = Callable[..., Foreground]
