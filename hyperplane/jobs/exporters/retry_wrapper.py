"""Run a program with retries: ``python retry_wrapper.py DELAYS CODES WORD...``.

``DELAYS`` are the seconds before each retry, ``CODES`` the exit codes that are not retried, both
separated by commas. SIGTERM is passed to the program and ends the retries. This file runs alone and
imports nothing of hyperplane. It is not a shell script because bash loses the exit code of a
program that gets a signal at the same time as bash, as sent by Slurm.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any


class _RetryingProgram:
    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.ended, self._runs = words, False, 0
        self._child: subprocess.Popen[bytes] | None = None

    def end(self, *_: Any) -> None:
        """Terminate the program; there are no more retries."""
        self.ended = True
        if self._child is not None:
            self._child.terminate()

    def run(self) -> int:
        """Run the program once and return its exit code as a shell does."""
        try:
            restarts = {"HYPERPLANE_RESTART_COUNT": str(self._runs)}
            self._runs += 1
            self._child = subprocess.Popen(  # noqa: S603 - a list, and no shell
                self.words, env={**os.environ, **restarts}
            )
        except OSError as error:
            sys.stderr.write(f"{self.words[0]}: {error.strerror}\n")
            return 127 if isinstance(error, FileNotFoundError) else 126
        if self.ended:  # a signal came while it was started
            self._child.terminate()
        code = self._child.wait()
        return code if code >= 0 else 128 - code

    def wait(self, seconds: float) -> bool:
        """Wait before a retry; return False if a signal has ended the retries."""
        until = time.monotonic() + seconds
        while not self.ended and time.monotonic() < until:
            time.sleep(min(0.1, seconds))
        return not self.ended


def main(delays: str, codes: str, *words: str) -> int:
    """Run the program with retries and return the last exit code."""
    final_codes = {0, *map(int, codes.split(","))}
    program = _RetryingProgram(words)
    signal.signal(signal.SIGTERM, program.end)
    for delay in map(float, delays.split(",")):
        code = program.run()
        if code in final_codes or program.ended:
            return code
        sys.stderr.write(f"exit code {code}; next attempt in {delay:g} s\n")
        sys.stderr.flush()
        if not program.wait(delay):
            return code
    return program.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
