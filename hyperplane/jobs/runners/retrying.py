"""Run a program with retries: ``python retrying.py PAUSES CODES WORD...``.

``PAUSES`` are the seconds before each retry, ``CODES`` the exit codes after which there is none,
both with commas between. A polite signal goes to the program, and ends the tries. This file runs
by itself and imports nothing of hyperplane. It is no script for a shell because bash loses the exit
code of a program that gets the same signal at the same time, as Slurm sends it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any


class _RetryingProgram:
    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.ended = words, False
        self._child: subprocess.Popen[bytes] | None = None

    def end(self, *_: Any) -> None:
        """End the program politely; there is no next one."""
        self.ended = True
        if self._child is not None:
            self._child.terminate()

    def run(self) -> int:
        """The exit code of one attempt, as a shell would say it."""
        try:
            self._child = subprocess.Popen(self.words)  # noqa: S603 - a list, and no shell
        except OSError as error:
            sys.stderr.write(f"{self.words[0]}: {error.strerror}\n")
            return 127 if isinstance(error, FileNotFoundError) else 126
        if self.ended:  # while it was started
            self._child.terminate()
        code = self._child.wait()
        return code if code >= 0 else 128 - code

    def rest(self, seconds: float) -> bool:
        """Wait for so long, or until somebody ends the tries; whether nobody has."""
        until = time.monotonic() + seconds
        while not self.ended and time.monotonic() < until:
            time.sleep(min(0.1, seconds))
        return not self.ended


def main(pauses: str, codes: str, *words: str) -> int:
    """Make the attempts; the exit code of the last one."""
    last = {0, *map(int, codes.split(","))}
    tries = _RetryingProgram(words)
    signal.signal(signal.SIGTERM, tries.end)
    for pause in map(float, pauses.split(",")):
        code = tries.run()
        if code in last or tries.ended:
            return code
        sys.stderr.write(f"exit code {code}; again in {pause:g} s\n")
        sys.stderr.flush()
        if not tries.rest(pause):
            return code
    return tries.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
