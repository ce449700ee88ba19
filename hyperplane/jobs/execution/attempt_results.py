"""What an attempt leaves: its log and notebook without secrets, and its artifacts in the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hyperplane.core.artifact_reports import REPORTS_FOLDER
from hyperplane.core.errors import HyperplaneError, JobStoreError
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution import redaction, step_graphql
from hyperplane.jobs.execution.artifact_recording import (
    OUTPUTS_SUFFIX,
    REPORTS_SUFFIX,
    collect_artifacts,
)
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.step_command import notebook_output_path
from hyperplane.jobs.execution.step_environment import OUTPUT_FOLDER, find_secrets
from hyperplane.jobs.runners.base import SharedFilesystemMixin
from hyperplane.jobs.store.job_records import Attempt, Job, WorkUnit
from hyperplane.jobs.store.job_store import JobStore

_log = logging.getLogger(__name__)


class AttemptResults:
    """Masks the secrets of a job's attempts, and records their artifacts.

    Parameters
    ----------
    store : JobStore
        Store of the artifacts.
    job : Job
        The job.
    runner : Runner
        Its runner.
    environment : mapping of str to str
        Environment of the submission, which may have secrets.
    secrets : str
        Folder with secrets.
    """

    def __init__(
        self,
        store: JobStore,
        job: Job,
        runner: object,
        environment: Mapping[str, str],
        secrets: str,
    ) -> None:
        self._store, self._job, self._runner = store, job, runner
        self._environment, self._secrets = environment, secrets

    async def finish(
        self, step: Step, attempt: Attempt, command: AttemptCommand, code: int | None
    ) -> tuple[str, ...]:
        """Mask secrets, record artifacts of an attempt that has ended, and return the secrets.

        Raises
        ------
        JobStoreError
            If the store cannot be written now, but later.
        """
        values, missing = find_secrets(step.secrets, self._environment, self._secrets)
        if missing and not isinstance(self._runner, SharedFilesystemMixin):
            # Elsewhere the program that writes the log masks it.
            _log.warning(
                "the log of %s is not masked: this supervisor does not have the secret %s",
                command.attempt_prefix,
                ", ".join(missing),
            )
        tokens = step_graphql.find_tokens(self._runner, command.environment)
        secret_values = (*values.values(), *tokens)
        if secret_values:
            await asyncio.to_thread(redaction.redact_file, command.file(".log"), secret_values)
            if step.kind == "notebook":
                unit = WorkUnit(step.name, attempt.chunk, step.chunk_count)
                notebook = notebook_output_path(self._job, step, unit)
                await asyncio.to_thread(redaction.redact_file, notebook, secret_values)
        # Afterwards, as what is recorded is the file without secrets.
        await asyncio.to_thread(self._record, step, attempt, command, secret_values, code)
        return secret_values

    def _record(
        self,
        step: Step,
        attempt: Attempt,
        command: AttemptCommand,
        secrets: tuple[str, ...],
        code: int | None,
    ) -> None:
        with suppress(OSError):  # it has files
            command.file(OUTPUTS_SUFFIX).rmdir()
        note = ""
        try:
            found, note = collect_artifacts(
                self._job, step, attempt, command, secrets, succeeded=code == 0
            )
            self._store.save_artifacts(found)
        except Exception as error:  # what a step reports must not fail its job
            if isinstance(error, JobStoreError) and error.passing:
                raise
            _log.warning(
                "artifacts of %s were not stored: %s", command.attempt_prefix, error,
                exc_info=not isinstance(error, HyperplaneError),
            )  # fmt: skip
        if note and code == 0:  # else the end of the log is the reason of the failure
            with (
                suppress(OSError),
                command.file(".log").open("a", encoding="utf-8", errors="replace") as log,
            ):
                log.write(f"\n[hyperplane: {note}]\n")


def make_result_variables(command_prefix: Path) -> dict[str, str]:
    """Create the output folder of an attempt; return the variables for what it saves."""
    outputs, reports = (
        command_prefix.with_name(command_prefix.name + suffix)
        for suffix in (OUTPUTS_SUFFIX, REPORTS_SUFFIX)
    )
    outputs.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    outputs.mkdir(mode=0o700, exist_ok=True)
    return {OUTPUT_FOLDER: str(outputs), REPORTS_FOLDER: str(reports)}
