"""``hyperplane job render``: print the steps of a job, or write a runner's files."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from hyperplane.cli.job_options import (
    ActiveOption,
    FileArgument,
    NameOption,
    ParametersOption,
    RetriesOption,
    TimeoutOption,
    build_job,
)
from hyperplane.cli.output import JsonOption, write_json, write_rows
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution import requirements
from hyperplane.jobs.execution.cluster_arguments import cluster_variable
from hyperplane.jobs.execution.step_command import (
    build_arguments,
    notebook_output_path,
    working_folder,
)
from hyperplane.jobs.execution.step_environment import (
    secret_variables,
    step_variables,
)
from hyperplane.jobs.exporters import registry
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.pipeline_sizes import size_pipeline
from hyperplane.jobs.store.job_records import Job, WorkUnit


def render(
    file: FileArgument,
    parameter: ParametersOption = None,
    name: NameOption = None,
    timeout: TimeoutOption = None,
    active_timeout: ActiveOption = None,
    max_retries: RetriesOption = None,
    runner: Annotated[
        str,
        typer.Option(
            metavar="|".join(["local", *registry.EXPORTERS.built_in]), help="Runner of the steps."
        ),
    ] = "local",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "--runner-option",
            metavar="KEY=VALUE",
            help="Option of the runner: python for slurm, image and root for kubernetes, "
            "queue, image, staging and others for aws-batch, region, image, staging and others for "
            "vertex and cloud-run, region, role, staging and others for glue, "
            "region, staging, cluster and others for emr, application, role, staging and "
            "others for emr-serverless.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the runner's files to this folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the steps of a job, or a runner's scripts, manifests or requests; submit nothing."""
    options, faults = _parse_options(runner, option or [], out)
    job = build_job(
        file, parameter=parameter, name=name, timeout=timeout, active_timeout=active_timeout,
        max_retries=max_retries, runs_here=runner == "local", other_faults=faults,
    )  # fmt: skip
    if runner == "local":
        show_local(job, as_json)
        return
    documents = registry.render(runner, job, **options)
    result = RenderResult() if out is None else write_documents(documents, out)
    for path in result.removed:
        typer.echo(f"removed {path}, which an earlier render had written", err=True)
    for path in result.left:
        message = f"kept {path}, which an earlier render had written and which has changed since"
        typer.echo(message, err=True)
    if as_json:
        fields = [document._asdict() for document in documents]
        write_json({"runner": runner, "documents": fields, **result._asdict()})
    elif result.written:
        typer.echo("\n".join(result.written))
    else:
        _show_documents(documents)


def _parse_options(
    runner: str, texts: Sequence[str], out: Path | None
) -> tuple[dict[str, str], list[Fault]]:
    """Validate the runner; return its options by name, and faults."""
    faults = []
    exporters = registry.EXPORTERS.names()
    if runner not in ("local", *exporters):
        allowed = f"one of local, {', '.join(exporters)}"
        faults.append(Fault("--runner", repr(runner), allowed))
    elif runner == "local" and (texts or out is not None):
        faults.append(Fault("--option, --out", "", f"only with --runner {' or '.join(exporters)}"))
    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or key in options:
            faults.append(Fault("--option", repr(text), "KEY=VALUE, each key once"))
        options[key] = value
    return options, faults


def _show_documents(documents: Sequence[Document]) -> None:
    are_manifests = all(document.name.endswith((".yaml", ".yml")) for document in documents)
    for number, document in enumerate(documents):
        if number:
            typer.echo("---" if are_manifests else "")
        if len(documents) > 1:
            typer.echo(f"# {document.name}")
        typer.echo(document.text.rstrip("\n"))


def show_local(job: Job, as_json: bool) -> None:
    """Print the commands of a job's steps on this machine, and the names of their variables."""
    sized = size_pipeline(job)
    steps = requirements.add_install_step(job.pipeline, sys.executable)
    documents = [
        _step_document(job, sized[step.name].step, sized[step.name].reasons)
        if step.name in sized
        else _step_document(job, step)
        for step in steps
    ]
    if as_json:
        write_json({
            "runner": "local", "name": job.name, "root": job.pipeline.root,
            "max_retries": job.max_retries, "timeout": job.timeout,
            "active_timeout": job.active_timeout, "steps": documents,
        })  # fmt: skip
        return
    times = f"{job.timeout:g} s from submission, {job.active_timeout:g} s from the start"
    write_rows([
        ("pipeline", job.pipeline.name),
        ("root", job.pipeline.root),
        ("limits", times.replace("-1 s", "no limit")),
        ("retries", str(job.max_retries)),
    ])  # fmt: skip
    for document in documents:
        typer.echo()
        write_rows(_rows(document))


def _step_document(job: Job, step: Step, sizes: Sequence[str] = ()) -> dict[str, Any]:
    chunks = step.chunk_count
    unit = WorkUnit(step.name, 0 if chunks else -1, chunks)
    python = requirements.select_interpreter(job.pipeline, sys.executable)
    names = {**step_variables(job, step, unit, 1), **cluster_variable(step, 0)}
    document: dict[str, Any] = {
        "name": step.name,
        "kind": step.kind,
        "after": list(step.depends_on),
        "argv": list(build_arguments(job, step, unit, python)),
        "folder": working_folder(job.pipeline, step),
        "chunks": chunks,
        "max_parallel": step.max_parallel,
        "processes": step.gang_size or 1,
        "retries": step.retries,
        "timeout": step.timeout,
        "resources": step.resources.model_dump(exclude_none=True, exclude_defaults=True),
        "variables": sorted(names),
        "secrets": list(step.secrets),
        "secret_variables": sorted(secret_variables(dict.fromkeys(step.secrets, ""))),
    }
    if sizes:
        document["automatic"] = list(sizes)
    if step.kind == "notebook":
        document["output"] = str(notebook_output_path(job, step, unit))
    return document


def _rows(step: dict[str, Any]) -> list[tuple[str, str]]:
    """Return labels and texts of the document of a step."""
    rows = [
        ("step", step["name"]),
        ("after", ", ".join(step["after"]) or "nothing"),
        ("runs", shlex.join(step["argv"])),
        ("in", str(Path(step["folder"]))),
    ]
    if step["processes"] > 1:
        rows.append(("processes", f"{step['processes']}, started together"))
    if step["chunks"]:
        most = step["max_parallel"]
        rows.append(("chunks", f"{step['chunks']}" + (f", {most} at once" if most else "")))
    if step["retries"] is not None:
        rows.append(("retries", str(step["retries"])))
    if step["timeout"] is not None:
        rows.append(("timeout", f"{step['timeout']:g} s"))
    if step["resources"]:
        needs = (f"{name} {value}" for name, value in step["resources"].items())
        rows.append(("needs", ", ".join(needs)))
    rows += [("size", text) for text in step.get("automatic", ())]
    rows.append(("variables", ", ".join(step["variables"])))
    if step["secrets"]:
        rows.append(("secrets", ", ".join(step["secret_variables"])))
    return rows


#: File with names and checksums in the format of sha256sum; kubectl ignores a file of this name.
LIST_NAME = ".hyperplane-rendered"


class RenderResult(NamedTuple):
    """Paths of files that a render wrote, removed, and left because their content was changed."""

    written: list[str] = []  # noqa: RUF012 - never modified
    removed: list[str] = []  # noqa: RUF012
    left: list[str] = []  # noqa: RUF012


def write_documents(documents: Sequence[Document], out: Path) -> RenderResult:
    """Write a runner's files and remove those of the previous render that are obsolete.

    Raises
    ------
    RequestError
        If the folder is not writable, or a file with one of the names was not written by a render
        or has changed since.
    """
    texts = {document.name: document.text.encode() for document in documents}
    try:
        out.mkdir(parents=True, exist_ok=True)
        previous = _read_previous(out)
        check(_conflicts(out, previous, texts))
        removed, left = [], []
        for name in sorted(set(previous) - set(texts)):
            file = out / name
            if file.is_file() and not file.is_symlink():
                if _digest(file.read_bytes()) == previous[name]:
                    file.unlink()
                    removed.append(str(file))
                else:
                    left.append(str(file))
        # The list first, so that an interrupted render has no file that is not listed.
        lines = (f"{_digest(text)}  {name}\n" for name, text in texts.items())
        (out / LIST_NAME).write_text("".join(lines), encoding="utf-8", newline="")
        for name, text in texts.items():
            (out / name).write_bytes(text)
    except OSError as error:
        allowed = "a writable folder"
        raise RequestError([Fault("--out", str(out), allowed, error.strerror or "")]) from error
    return RenderResult([str(out / name) for name in texts], removed, left)


def _conflicts(
    out: Path, previous: Mapping[str, str], texts: Mapping[str, bytes]
) -> Iterator[Fault]:
    """Yield a fault for each file whose content is neither that of the previous render nor new."""
    for name, text in texts.items():
        file = out / name
        if not file.exists() and not file.is_symlink():
            continue
        if not file.is_file() or _digest(file.read_bytes()) not in (
            previous.get(name),
            _digest(text),
        ):
            allowed = "a name without a file, or with an unchanged file of an earlier render"
            yield Fault("--out", str(file), allowed, "move the file, or give another folder")


def _read_previous(out: Path) -> dict[str, str]:
    """Return the names and checksums of the files of the previous render."""
    try:
        lines = (out / LIST_NAME).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("  ") for line in lines)
    return {name: digest for digest, _, name in pairs if name and Path(name).name == name}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
