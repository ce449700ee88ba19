"""Runner for Kubernetes: each attempt is a Job with one pod.

The supervisor creates the Job of an attempt when the dependencies are done, copies the pod's output
to the job's folder, records how it ended, deletes the Job, and creates that of the next attempt. If
the supervisor is killed, the pods continue, and the next supervisor finds their Jobs by the names
of the attempts.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hyperplane import config
from hyperplane.clusters.gang_plan import PLAN_VARIABLE
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.jobs import calls, notebook
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.base import RemoteQueueMixin
from hyperplane.jobs.runners.kubernetes.attempt_manifests import (
    build_job,
    build_secret,
    list_words,
)
from hyperplane.jobs.runners.kubernetes.gang_files import PLAN_SUFFIX
from hyperplane.jobs.runners.kubernetes.gang_manifests import (
    build_gang_service,
    stage_gang_program,
)
from hyperplane.jobs.runners.kubernetes.gang_process import GangProcess
from hyperplane.jobs.runners.kubernetes.measured_command import (
    measuring_words,
    stage_measuring_programs,
)
from hyperplane.jobs.runners.kubernetes.pod_process import PodProcess
from hyperplane.jobs.runners.kubernetes.step_pod import CONTAINER, FOLDER, find_requirements_faults
from hyperplane.jobs.runners.notebook_program import PROGRAM_FILES
from hyperplane.jobs.runners.task_manifest import with_reports
from hyperplane.jobs.runners.tuning_support import find_tuning_faults
from hyperplane.jobs.step_wrapper import USAGE_SUFFIX
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.kubernetes.batch_job import BATCH
from hyperplane.platforms.kubernetes.errors import KubernetesError
from hyperplane.platforms.kubernetes.job_watcher import JobWatcher
from hyperplane.platforms.kubernetes.kubeconfig import resolve_kubeconfig
from hyperplane.platforms.kubernetes.staged_files import MAX_FILE_BYTES, StagedFile
from hyperplane.spec.settings import KubernetesJobSettings

if TYPE_CHECKING:
    from hyperplane.platforms.kubernetes.api import KubernetesApi

_PYTHON = "python"
#: Seconds for the login, short because no user of a supervisor can log in with a browser.
LOGIN_SECONDS = 30.0
#: Seconds within which the API server has to respond to a request.
REQUEST_SECONDS = 30.0
#: Folder in a pod of the program that executes notebooks.
_PROGRAM_FOLDER = f"{FOLDER}/.hyperplane"


class KubernetesRunner(RemoteQueueMixin):
    """Runs steps as Kubernetes Jobs; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "kubernetes"
    at_once: ClassVar[int] = 500
    runs_gangs: ClassVar[bool] = True
    starts_clusters: ClassVar[bool] = True

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        self._settings = KubernetesJobSettings(**options)
        del environment  # its relevant parts are in the options
        self._watcher: JobWatcher | None = None
        self._may_create_secrets = True

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the engine's Kubernetes settings, overridden by options of the submission."""
        settings = config.engine_settings("kubernetes", KubernetesJobSettings)
        settings_in_use = settings.with_options(options, "runner_options")
        if settings_in_use.kubeconfig is None:  # the supervisor may have another default
            settings_in_use = settings_in_use.model_copy(
                update=resolve_kubeconfig(settings_in_use.namespace, settings_in_use.context)
            )
        return settings_in_use.model_dump(mode="json", by_alias=True, warnings="none")

    @property
    def image(self) -> str:
        """The image of the pods; empty if the settings name none."""
        return self._settings.image or ""

    def unavailable_reason(self) -> str:
        """Return why kr8s, an image or the API server is missing; empty if none is."""
        if not is_installed("kr8s"):
            return "install kr8s with: pip install 'hyperplane[kubernetes]'"
        if self._settings.image is None:
            return (
                "set an image with hyperplane.engines.kubernetes.image or the option "
                "image=registry/name:tag"
            )
        with ThreadPoolExecutor(1) as executor:  # the main thread of a notebook has an event loop
            return executor.submit(asyncio.run, self._connection_error()).result()

    async def _connection_error(self) -> str:
        api = self._create_api()
        try:
            await api.connect()
            for kind, version in (("jobs", BATCH), ("pods", "v1")):
                await api.list(kind, version)
        except KubernetesError as error:
            return str(error)
        finally:
            with suppress(KeyError):
                await api.close()
        return ""

    def _create_api(self) -> KubernetesApi:
        from hyperplane.platforms.kubernetes.api import KubernetesApi  # it needs kr8s

        return KubernetesApi(
            self._settings.namespace,
            self._settings.kubeconfig,
            self._settings.context,
            LOGIN_SECONDS,
            REQUEST_SECONDS,
        )

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that pods cannot run."""
        faults = find_requirements_faults(pipeline)
        faults += find_tuning_faults(pipeline, self.name)
        for step in pipeline.steps:
            where = f"step {step.name!r}: "
            if step.argv[1:] == ("-m", calls.PROGRAM):
                allowed = "a script or notebook, or a program in the image"
                faults.append(Fault(f"{where}argv", "a Python function", allowed))
            if step.package_path and self._settings.root is None:
                allowed = "no value: a folder is not sent to pods"
                advice = "add it to the image, and set the option root=FOLDER"
                shown = format_value(step.package_path)
                faults.append(Fault(f"{where}package_path", shown, allowed, advice))
            if step.path and self._settings.root is None:
                faults += _file_faults(where, Path(pipeline.root, step.path))
        return faults

    def with_runtime_paths(self, job: Job) -> Job:
        """Return the job with the folders and interpreter of the image."""
        pipeline, root = job.pipeline, self._settings.root
        steps = pipeline.steps
        if root is None:  # the file of each step is staged
            steps = tuple(
                step.model_copy(update={"path": Path(step.path).name, "working_dir": None})
                for step in steps
            )
            pipeline = pipeline.model_copy(update={"working_dir": None})
        moved = pipeline.model_copy(update={"root": root or FOLDER, "steps": steps})
        return replace(job, definition=moved.to_json(), folder=FOLDER, python=_PYTHON)

    async def start(self, command: AttemptCommand, step: Step, memory_factor: float) -> PodProcess:
        """Create the Job of an attempt, and the Secret that it owns."""
        for suffix in (".exit", ".pid", USAGE_SUFFIX):
            command.file(suffix).unlink(missing_ok=True)
        command = with_reports(command)
        files = []
        if command.script is not None and self._settings.root is None:
            where = f"{FOLDER}/{command.script.name}"
            files.append(StagedFile("hyperplane-file", where, command.script.read_bytes()))
        if step.kind == "notebook":
            # The program that executes the notebook is staged, too: the image need not have this
            # package.
            program = [
                StagedFile(
                    f"hyperplane-program-{number}",
                    f"{_PROGRAM_FOLDER}/{file.name}",
                    file.read_bytes(),
                )
                for number, file in enumerate(PROGRAM_FILES)
            ]
            files += program
            words = (_PYTHON, program[0].path, *command.argv[2:])
            command = replace(
                command,
                argv=words,
                step_variables={**command.step_variables, notebook.SEND_VARIABLE: "1"},
            )
            command.file(".notebook").write_text(str(command.notebook))
        if step.gang_size:
            files += stage_gang_program()
            command.file(PLAN_SUFFIX).write_text(command.step_variables[PLAN_VARIABLE])
        before = measuring_words(list_words(command, step))
        needs_secret = bool(files or command.secret_variables)
        if before and (needs_secret or self._may_create_secrets):
            try:
                staged = [*files, *stage_measuring_programs()]
                return await self._create_job(
                    command, step, memory_factor, staged, before, waits_for_secret=needs_secret
                )
            except OSError:
                if needs_secret:
                    raise
                # The namespace may not allow the Secret, which only the measurement needs.
                self._may_create_secrets = False
        return await self._create_job(command, step, memory_factor, files)

    async def _create_job(
        self,
        command: AttemptCommand,
        step: Step,
        memory_factor: float,
        files: Sequence[StagedFile],
        before: Sequence[str] = (),
        *,
        waits_for_secret: bool = True,
    ) -> PodProcess:
        watcher = self._get_watcher()
        job = build_job(command, step, memory_factor, self._settings, files, before)
        try:
            # The Secret after the Job, which owns it and with which it is deleted.
            await watcher.create(
                job,
                partial(build_secret, command=command, files=files),
                **({"service_of": build_gang_service} if step.gang_size else {}),
                waits_for_secret=waits_for_secret,
            )
        except OSError as error:
            process = _create_process(command, watcher)
            if error.errno == errno.EAGAIN:  # it is unknown whether it was created
                return process
            await process.delete_job()
            raise
        return _create_process(command, watcher, time.monotonic())

    def reattach(self, command: AttemptCommand) -> PodProcess:
        """Return the process of a Job that an earlier supervisor created."""
        return _create_process(command, self._get_watcher())

    async def close(self) -> None:
        """Close the connection to the API server."""
        if self._watcher is not None:
            await self._watcher.close()

    def _get_watcher(self) -> JobWatcher:
        if self._watcher is None:
            self._watcher = JobWatcher(self._create_api(), CONTAINER)
        return self._watcher


def _create_process(
    command: AttemptCommand, watcher: JobWatcher, created: float | None = None
) -> PodProcess:
    is_gang = command.file(PLAN_SUFFIX).exists()
    return (GangProcess if is_gang else PodProcess)(command, watcher, created)


def _file_faults(where: str, file: Path) -> list[Fault]:
    try:
        size = file.stat().st_size
    except OSError:
        return []  # read_pipeline() reports missing files
    if size <= MAX_FILE_BYTES:
        return []
    allowed = f"at most {MAX_FILE_BYTES} bytes for a staged file"
    advice = "add it to the image, and set the option root=FOLDER"
    return [Fault(f"{where}{file.name}", f"{size} bytes", allowed, advice)]
