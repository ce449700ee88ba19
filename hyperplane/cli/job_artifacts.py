"""``hyperplane job artifacts`` and ``hyperplane job artifact``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hyperplane.cli.job_options import IdArgument
from hyperplane.cli.output import JsonOption, new_table, show, write_json
from hyperplane.core.errors import Fault, check
from hyperplane.core.units import format_bytes, plural
from hyperplane.jobs.artifact_download import download_artifact, is_several, write_artifact
from hyperplane.jobs.artifacts import choose_artifact, list_artifacts, with_output
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.store.artifact_records import Artifact, describe_origin
from hyperplane.jobs.store.jobs_home import open_store

#: Tables of a narrow terminal are at least this wide.
_MIN_WIDTH = 60
_StepOption = Annotated[
    str | None, typer.Option("--step", metavar="STEP", help="Only artifacts of this step.")
]
_NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the artifact, the end of it, or its address."),
]


def show_artifacts(id_: IdArgument, step: _StepOption = None, as_json: JsonOption = False) -> None:
    """Show what the steps of a job have saved, attached to the run."""
    found = list_artifacts(id_, step)
    if as_json:
        job = find_job(open_store(), id_)
        write_json([with_output(job, each) for each in found])
        return
    if not found:
        typer.echo("no artifacts" if step is None else f"no artifacts of step {step!r}")
        return
    table = new_table(["name", "step", "kind"], ["size", "rows"])
    for each in found:
        size = "" if each.size is None else format_bytes(each.size)
        rows = "" if each.rows is None else f"{each.rows:,}"
        table.add_row(
            to_plain_line(each.name), to_plain_line(describe_origin(each)), each.kind, size, rows
        )
    show(table, min_width=_MIN_WIDTH)


def fetch_artifact(
    id_: IdArgument,
    name: _NameArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File or folder to write, - for standard output; by default the name of the "
            "artifact in the current folder.",
        ),
    ] = None,
    step: _StepOption = None,
    chunk: Annotated[int | None, typer.Option(help="The chunk with this number, from 0.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that exists.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy an artifact of a job to a file or folder, also from an object store.

    A file that has changed since its step ended is not copied.
    """
    if output == "-":
        _print(id_, name, step, chunk)
        return
    written = download_artifact(id_, name, output, step=step, chunk=chunk, overwrite=overwrite)
    if as_json:
        write_json({"file": str(written), "bytes": _measure(written)})
        return
    typer.echo(f"{to_plain_line(str(written))} is written, {format_bytes(_measure(written))}")


def _measure(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _print(id_: str, name: str, step: str | None, chunk: int | None) -> None:
    listed = list_artifacts(id_, step)
    job = find_job(open_store(), id_)
    artifact: Artifact = choose_artifact(job, listed, name, chunk)
    if is_several(artifact):
        count = "a folder" if artifact.files is None else plural(artifact.files, "file")
        check([Fault("--output", "-", f"a folder, as the artifact is {count}")])
    write_artifact(job, artifact, sys.stdout.buffer)
    sys.stdout.flush()
