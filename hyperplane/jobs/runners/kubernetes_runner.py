"""Kubernetes as the place where the steps of a job run: each attempt is a Job with one pod.

Whoever looks after the job creates the Job of an attempt when those before it are done, keeps what
its pod writes in the job's folder, sees how it ended, takes it away, and creates the next one. When
the supervisor is killed the pods go on, and the next one finds their Jobs by the attempts' names.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from hyperplane import config
from hyperplane.engines import running_system
from hyperplane.errors import EngineError, Fault
from hyperplane.jobs import calls, cell_errors, kernel_folder, notebook
from hyperplane.jobs.definition.models import Pipeline, Step
from hyperplane.jobs.definition.wording import format_value
from hyperplane.jobs.processes import Command
from hyperplane.jobs.runners.base import RemoteQueueMixin
from hyperplane.jobs.runners.kubeconfig import resolve_kubeconfig
from hyperplane.jobs.runners.kubernetes_attempt import (
    FOLDER,
    MAX_FILE_BYTES,
    StagedFile,
    build_job,
    build_secret,
)
from hyperplane.jobs.runners.kubernetes_pod import PodProcess
from hyperplane.jobs.runners.kubernetes_watcher import (
    BATCH,
    REQUEST_SECONDS,
    JobWatcher,
    error_text,
    run_within,
)
from hyperplane.jobs.states import Job
from hyperplane.spec.settings import KubernetesJobSettings

_PYTHON = "python"
#: The program that executes notebooks, what it imports, and where they are in a pod.
_PROGRAM_FILES = [
    Path(str(one.__file__)) for one in (notebook, cell_errors, kernel_folder, running_system)
]
_PROGRAM_FOLDER = f"{FOLDER}/.hyperplane"


class KubernetesRunner(RemoteQueueMixin):
    """Steps as Jobs of Kubernetes.

    Parameters
    ----------
    environment : mapping of str to str
        As for all runners.
    options : mapping
        As :meth:`resolve_options` gives them.
    """

    name: ClassVar[str] = "kubernetes"
    at_once: ClassVar[int] = 500

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        self._settings = KubernetesJobSettings(**options)
        del environment  # what is needed of it was settled at submission
        self._watcher: JobWatcher | None = None

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the engine of this name, with those of the submission over them."""
        settings = config.engine_settings("kubernetes", KubernetesJobSettings)
        found = settings.with_options(options, "runner_options")
        if found.kubeconfig is None:  # whoever carries the job on may have another one
            found = found.model_copy(update=resolve_kubeconfig(found.namespace, found.context))
        return found.model_dump(mode="json", by_alias=True, warnings="none")

    def unavailable_reason(self) -> str:
        """What it needs: kr8s, an image, and an API server that answers."""
        if importlib.util.find_spec("kr8s") is None:
            return "it needs kr8s: pip install 'hyperplane[kubernetes]'"
        if self._settings.image is None:
            return (
                "it needs an image: set hyperplane.engines.kubernetes.image, or give the option "
                "image=registry/name:tag"
            )
        with ThreadPoolExecutor(1) as apart:  # a notebook has an event loop of its own
            return apart.submit(asyncio.run, self._connection_error()).result()

    async def _connection_error(self) -> str:
        from hyperplane.engines.kubernetes.api import KubernetesApi

        api = KubernetesApi(self._settings.namespace)
        try:
            connecting = api.connect(self._settings.kubeconfig, self._settings.context)
            await run_within(REQUEST_SECONDS, connecting)
            for kind, version in (("jobs", BATCH), ("pods", "v1")):
                await run_within(REQUEST_SECONDS, api.list(kind, version))
        except (TimeoutError, EngineError) as error:
            return error_text(error)
        finally:
            with suppress(KeyError):
                await api.close()
        return ""

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """All that keeps a pipeline from running there."""
        faults = []
        if pipeline.requirements is not None:
            advice = "install them in the image, and leave the key out"
            asked = format_value(pipeline.requirements)
            faults.append(Fault("requirements", asked, "nothing on kubernetes", advice))
        for step in pipeline.steps:
            where = f"step {step.name!r}: "
            if step.argv[1:] == ("-m", calls.PROGRAM):
                allowed = "a script or notebook, or a program that the image has"
                faults.append(Fault(f"{where}argv", "a Python function", allowed))
            if step.path and self._settings.root is None:
                faults += _file_faults(where, Path(pipeline.root, step.path))
        return faults

    def with_runtime_paths(self, job: Job) -> Job:
        """The job with the folders and the interpreter of the image."""
        pipeline, root = job.pipeline, self._settings.root
        steps = pipeline.steps
        if root is None:  # each step's own file goes with it
            steps = tuple(
                one.model_copy(update={"path": Path(one.path).name, "working_dir": None})
                for one in steps
            )
            pipeline = pipeline.model_copy(update={"working_dir": None})
        moved = pipeline.model_copy(update={"root": root or FOLDER, "steps": steps})
        return replace(job, definition=moved.to_json(), folder=FOLDER, python=_PYTHON)

    async def start(self, command: Command, step: Step, memory_factor: float) -> PodProcess:
        """Create the Job of an attempt, and the Secret that it owns."""
        for suffix in (".exit", ".pid"):
            command.file(suffix).unlink(missing_ok=True)
        sent = []
        if command.script is not None and self._settings.root is None:
            where = f"{FOLDER}/{command.script.name}"
            sent.append(StagedFile("hyperplane-file", where, command.script.read_bytes()))
        if step.kind == "notebook":
            # The program that runs it goes with it, too: it needs nothing else of this package.
            program = [
                StagedFile(
                    f"hyperplane-program-{number}",
                    f"{_PROGRAM_FOLDER}/{file.name}",
                    file.read_bytes(),
                )
                for number, file in enumerate(_PROGRAM_FILES)
            ]
            sent += program
            words = (_PYTHON, program[0].path, *command.argv[2:])
            command = replace(
                command,
                argv=words,
                step_variables={**command.step_variables, notebook.SEND_VARIABLE: "1"},
            )
            command.file(".notebook").write_text(str(command.notebook))
        watcher = self._get_watcher()
        job = build_job(command, step, memory_factor, self._settings, sent)
        try:
            # The Secret after the Job, which owns it: whatever ends the Job ends the Secret.
            await watcher.create(job, partial(build_secret, command=command, sent=sent))
        except OSError as error:
            found = PodProcess(command, watcher)
            if error.errno == errno.EAGAIN:  # nobody knows whether it is there
                return found
            await found.delete_job()
            raise
        return PodProcess(command, watcher, time.monotonic())

    def reattach(self, command: Command) -> PodProcess:
        """The Job that somebody else has created."""
        return PodProcess(command, self._get_watcher())

    def _get_watcher(self) -> JobWatcher:
        if self._watcher is None:
            self._watcher = JobWatcher(self._settings)
        return self._watcher


def _file_faults(where: str, file: Path) -> list[Fault]:
    try:
        size = file.stat().st_size
    except OSError:
        return []  # it is told of already
    if size <= MAX_FILE_BYTES:
        return []
    allowed = f"at most {MAX_FILE_BYTES} bytes, which go with the step"
    advice = "put it into the image, and give the option root=FOLDER"
    return [Fault(f"{where}{file.name}", f"{size} bytes", allowed, advice)]
