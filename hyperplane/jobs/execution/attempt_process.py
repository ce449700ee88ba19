"""Commands of attempts at steps, and attempts as processes of this machine.

A step's process continues when its supervisor is killed, and the next supervisor must learn how it
ended. Therefore a small wrapper program records its process ID and the exit code.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hyperplane.platforms.local.processes import DetachedProcess, start_detached

_STEP_WRAPPER = Path(__file__).parents[1] / "step_wrapper.py"


@dataclass(frozen=True)
class AttemptCommand:
    """Program of an attempt, and the paths of the attempt's files.

    Parameters
    ----------
    argv : sequence of str
        Program and arguments.
    environment : mapping of str to str
        The complete environment.
    folder : str
        Working folder.
    attempt_prefix : Path
        Path of the attempt's files (log, exit code and others) without their suffix.
    step_variables : mapping of str to str
        The part of the environment that the step adds to the submission's; without secrets.
    secret_variables : mapping of str to str
        Variables with secrets.
    script : Path, optional
        Script or notebook on this machine that the step runs.
    pool : str
        Pool that the step names.
    notebook : Path, optional
        Path of the executed notebook, for a notebook step.
    python : str
        Interpreter of the pipeline, with its requirements.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    folder: str
    attempt_prefix: Path
    step_variables: Mapping[str, str] = field(default_factory=dict)
    secret_variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    script: Path | None = None
    pool: str = ""
    notebook: Path | None = None
    python: str = sys.executable

    def file(self, suffix: str) -> Path:
        """Return the path of the attempt's file with a suffix such as ``".log"``."""
        return self.attempt_prefix.with_name(self.attempt_prefix.name + suffix)


class LocalProcess(DetachedProcess):
    """The process of one attempt, started by this supervisor or by an earlier one.

    Parameters
    ----------
    command : AttemptCommand
        Program and files of the attempt.
    child : subprocess.Popen, optional
        The process, if it is a child of this one.
    """

    def __init__(
        self, command: AttemptCommand, child: subprocess.Popen[bytes] | None = None
    ) -> None:
        super().__init__(command.attempt_prefix, child)
        self.command = command

    @classmethod
    def start(cls, command: AttemptCommand) -> LocalProcess:
        """Start the process in a separate session.

        Raises OSError if its folder is missing or the system lacks resources.
        """
        prefix = command.attempt_prefix
        wrapper = [sys.executable, "-I", "-S", str(_STEP_WRAPPER), str(prefix)]
        argv = [*wrapper, *command.argv]
        return cls(command, start_detached(prefix, argv, command.environment, command.folder))

    async def wait_until_running(self) -> None:
        """Return at once: the process runs as soon as it is started."""
