"""Exporter to Slurm: an sbatch script per step, an array if it has chunks, and submit.sh."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from hyperplane import config
from hyperplane.core.errors import Fault, check
from hyperplane.jobs.definition.dependencies import waves
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution import requirements
from hyperplane.jobs.execution.retries import count_retries, retry_delay
from hyperplane.jobs.execution.step_command import working_folder
from hyperplane.jobs.execution.step_environment import PARAMETERS
from hyperplane.jobs.exporters import retry_wrapper
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.exported_step import (
    INPUT_CODES,
    StepEnvironment,
    build_command_line,
    build_environment,
    file_stem,
    find_common_faults,
)
from hyperplane.jobs.exporters.scheduler_text import format_limit, slug
from hyperplane.jobs.gang import gang_program
from hyperplane.jobs.runners.cluster_command import cluster_words
from hyperplane.jobs.runners.slurm.submit import batch_resources
from hyperplane.jobs.runners.step_resources import grace_seconds
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.submission.parameters import variable_name
from hyperplane.platforms.slurm.arrays import format_range
from hyperplane.platforms.slurm.directives import format_directives, format_options
from hyperplane.platforms.slurm.script import SUBMIT_FUNCTION, quote_word, render_array

#: Maximum bytes of a script: Slurm's limit is 4 MiB unless a site changes it.
_MAX_SCRIPT_BYTES = 1 << 22
#: Seconds by which Slurm may send a signal early.
_SIGNAL_EARLY_SECONDS = 60
_TASK_INDEX = '"$SLURM_ARRAY_TASK_ID"'
#: Secret lookup of ``submit.sh``: secrets are neither in arguments nor in files.
_RESOLVE_SECRETS = """\

# secret VARIABLE FILE NAME...: the first variable of these names that is not empty, or the file.
secret() {
  local variable=$1 file=$2 name value=''
  shift 2
  for name; do
    value=${!name:-}
    if [ -n "$value" ]; then break; fi
  done
  if [ -z "$value" ] && ! value=$(cat -- "$file" 2>/dev/null); then
    echo "no secret: set the variable $*, or write the file $file" >&2
    exit 2
  fi
  export "$variable=$value"
}
"""


@dataclass(frozen=True)
class SlurmExporter:
    """Exports jobs as sbatch scripts.

    ``python`` is the path of the interpreter on the nodes; the default is that of this process,
    which the nodes must share.
    """

    python: str = field(default_factory=lambda: sys.executable)

    name: ClassVar[str] = "slurm"

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that is not supported."""
        return list(find_common_faults(pipeline, self.name))

    def render(self, job: Job) -> list[Document]:
        """Render a script for each step, and ``submit.sh``, which submits them in order."""
        steps = requirements.add_install_step(job.pipeline, self.python)
        documents = [self._render_step(job, index, step) for index, step in enumerate(steps)]
        check(_size_faults(documents))
        return [*documents, Document("submit.sh", _render_submit_script(job, steps), "submit")]

    def _render_step(self, job: Job, index: int, step: Step) -> Document:
        name = file_stem(index, step)
        variables = build_environment(job, step)
        options = {
            **_sbatch_options(job, step, name),
            "export": ",".join(_exported_variables(variables)),
        }
        lines = [
            "#!/bin/bash",
            *format_directives(format_options(options)),
            f"# Step {step.name!a} of job {job.name!a}.",
            "set -euo pipefail",
        ]
        for first, *others in variables.secrets.values():
            lines += [f'export {other}="${first}"' for other in others]
        if variables.item_variables:
            lines += _item_arrays(step)
        lines.append(f"cd -- {quote_word(working_folder(job.pipeline, step))}")
        text = (
            "\n".join([*lines, " \\\n  ".join(self._build_words(job, index, step, variables))])
            + "\n"
        )
        return Document(f"{name}.sbatch", text, "step")

    def _build_words(
        self, job: Job, index: int, step: Step, variables: StepEnvironment
    ) -> list[str]:
        """Return the command that runs the step.

        Variables are set by ``env``, not by bash, in which some names are special, such as UID and
        RANDOM.
        """
        fixed = {name: text for name, text in variables.fixed.items() if name != PARAMETERS}
        words = ["exec env", *(f"{name}={quote_word(text)}" for name, text in fixed.items())]
        words += [f"{name}={_TASK_INDEX}" for name in variables.index_variables]
        words += [
            f'{name}="${{hyperplane_items[SLURM_ARRAY_TASK_ID]}}"'
            for name in variables.item_variables
        ]
        words.append(f"{PARAMETERS}={_parameters_word(step, variables)}")
        retries = count_retries(step, job.max_retries)
        if retries:
            seconds = ",".join(f"{delay:g}" for delay in _retry_delays(retries))
            codes = ",".join(map(str, INPUT_CODES))
            wrapper = quote_word(retry_wrapper.__file__)
            words.append(f"{quote_word(self.python)} -I {wrapper} {seconds} {codes}")
        if step.timeout is not None:
            # Found on the PATH of the node, which the step may change.
            program = '"$(command -v timeout)"'
            words.append(
                f"{program} --kill-after={math.ceil(grace_seconds())} {format_limit(step.timeout)}"
            )
        python = requirements.select_interpreter(job.pipeline, self.python)
        run = build_command_line(job, step, python)
        if step.gang_size:
            # Beside the log, which all nodes can read.
            folder = f'"$SLURM_SUBMIT_DIR/logs/{file_stem(index, step)}-$SLURM_JOB_ID.ranks"'
            program = quote_word(gang_program.__file__)
            words.append(f"{quote_word(self.python)} -I -S {program} slurm {folder}")
        cluster = cluster_words(step, python)
        if "=" in (cluster or run.words)[0]:  # env would read it as a variable
            words.append("/bin/sh -c 'exec \"$@\"' hyperplane-step")
        words += map(quote_word, (*cluster, *run.words))
        if run.output is not None:
            before, after = map(quote_word, run.output)
            words.append(f'{before}"$(printf %05d {_TASK_INDEX})"{after}')
        return words


def _sbatch_options(job: Job, step: Step, name: str) -> dict[str, str | int | bool | None]:
    """Return the sbatch options; names of the user are reduced to letters, digits and dashes."""
    count = step.chunk_count
    return {
        "job-name": f"{slug(job.name, 40)}.{name}",
        "no-requeue": True,
        "output": f"logs/{name}_{'%A_%a' if count else '%j'}.log",
        "array": format_range(count, step.max_parallel) if count else None,
        **batch_resources(step).options(),
        **_time_options(job, step),
    }


def _time_options(job: Job, step: Step) -> dict[str, str | int | bool | None]:
    """Return the time limit of all attempts at a step, and the signal before it."""
    if step.timeout is None:
        return {}
    retries = count_retries(step, job.max_retries)
    grace = math.ceil(grace_seconds())
    attempts = (retries + 1) * (step.timeout + grace) + sum(_retry_delays(retries))
    # For programs that outlive the timeout of their attempt.
    minutes = math.ceil((attempts + grace + _SIGNAL_EARLY_SECONDS) / 60)
    return {"time": minutes, "signal": f"B:TERM@{grace}"}


def _retry_delays(retries: int) -> list[float]:
    settings = config.jobs()
    return [retry_delay(retry, settings) for retry in range(1, retries + 1)]


def _exported_variables(variables: StepEnvironment) -> list[str]:
    """Return the variables that ``--export`` passes on: PATH and one for each secret."""
    return ["PATH", *(names[0] for names in variables.secrets.values())]


def _item_arrays(step: Step) -> list[str]:
    items = step.foreach or ()
    as_json = (json.dumps(item, ensure_ascii=False) for item in items)
    return [
        render_array("hyperplane_items", map(quote_word, items)),
        render_array("hyperplane_json", map(quote_word, as_json)),
    ]


def _parameters_word(step: Step, variables: StepEnvironment) -> str:
    """Return the parameters as JSON, including those of the chunk."""
    if not step.chunk_count:
        return quote_word(variables.fixed[PARAMETERS])
    shared = json.dumps(variables.parameters, ensure_ascii=False)[:-1]
    text = (
        quote_word(f'{shared}{", " if variables.parameters else ""}"chunk_id": "')
        + _TASK_INDEX
        + quote_word('"')
    )
    if step.foreach:
        text += quote_word(', "item": ') + '"${hyperplane_json[SLURM_ARRAY_TASK_ID]}"'
    return text + quote_word("}")


def _render_submit_script(job: Job, steps: tuple[Step, ...]) -> str:
    lines = ["#!/bin/bash", f"# Submits the steps of job {job.name!a} to Slurm."]
    text = "\n".join(lines) + "\n" + SUBMIT_FUNCTION
    secrets = {
        name: names[0]
        for step in steps
        for name, names in build_environment(job, step).secrets.items()
    }
    if secrets:
        folder = config.jobs().secrets
        text += _RESOLVE_SECRETS
        for name, variable in secrets.items():
            names = dict.fromkeys(
                spelling for spelling in (name, variable_name(name)) if spelling.isidentifier()
            )
            text += (
                " ".join(["secret", variable, quote_word(str(Path(folder, name))), *names]) + "\n"
            )
    by_name = {step.name: (index, step) for index, step in enumerate(steps)}
    submitted: dict[str, int] = {}
    text += "\n"
    for wave in waves(job.pipeline.model_copy(update={"steps": steps})):
        for name in wave:
            index, step = by_name[name]
            dependencies = [str(submitted[other]) for other in step.depends_on]
            text += " ".join(["submit", f"{file_stem(index, step)}.sbatch", *dependencies]) + "\n"
            submitted[name] = len(submitted)
    return text + "trap - EXIT\n"


def _size_faults(documents: list[Document]) -> list[Fault]:
    allowed = "at most 4 MiB, the limit of Slurm"
    return [
        Fault(
            document.name,
            f"{len(document.text.encode())} bytes",
            allowed,
            "give foreach fewer values",
        )
        for document in documents
        if len(document.text.encode()) > _MAX_SCRIPT_BYTES
    ]
