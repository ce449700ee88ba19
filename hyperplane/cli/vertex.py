"""``hyperplane vertex``: models, endpoints and batch predictions on Vertex AI."""

from __future__ import annotations

from typing import Annotated

import typer

from hyperplane.cli import vertex_batch, vertex_endpoint
from hyperplane.cli.option_names import OptionCommand
from hyperplane.cli.output import JsonOption, new_table, show, write_json
from hyperplane.cli.vertex_options import (
    ProjectOption,
    RegionOption,
    VersionArgument,
    check_account,
    no_model,
    open_requests,
    parse_version,
)
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import stating_outcome

app = typer.Typer(
    no_args_is_help=True,
    help="Models, endpoints and batch predictions on Google's Vertex AI. Settings are those of "
    "hyperplane.runners.vertex.",
)

_ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Id of the model.")]


@app.command(cls=OptionCommand)
def upload(
    model: _ModelArgument,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Name of the version.")],
    image: Annotated[str, typer.Option(help="Image of the container that predicts.")],
    artifact: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Folder of the model's files, such as gs://bucket/folder."
        ),
    ] = None,
    predict_route: Annotated[
        str | None, typer.Option(metavar="PATH", help="Path of the container for predictions.")
    ] = None,
    health_route: Annotated[
        str | None, typer.Option(metavar="PATH", help="Path of the container for checks.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port of the container; 8080 if none.")] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Make it the default version of the model.")
    ] = False,
    region: RegionOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload a version of a model, which is created if it is missing.

    The first version is the default one. Repeated with the same files and image, nothing changes.
    """
    from hyperplane.platforms.gcp.storage_check import find_missing_files, find_url_faults
    from hyperplane.platforms.gcp.vertex_models import (
        MODEL_ID,
        MODEL_SERVICE,
        VERSION,
        ModelsApi,
        ModelUpload,
    )

    faults = find_url_faults("artifact", [artifact] if artifact else [])
    if not MODEL_ID.fullmatch(model):
        faults.append(Fault("model", repr(model), "1 to 63 of a-z, 0-9, _ and -, first a letter"))
    if not VERSION.fullmatch(version) or version == "default":
        allowed = "2 to 128 letters, digits and hyphens, first a small letter, such as v1"
        faults.append(Fault("version", repr(version), allowed))
    faults += [
        Fault(name, repr(path), "a path that begins with /")
        for name, path in (("predict_route", predict_route), ("health_route", health_route))
        if path is not None and not path.startswith("/")
    ]
    if port is not None and not 0 < port < 1 << 16:
        faults.append(Fault("port", str(port), "a port from 1 to 65535"))
    with stating_outcome("nothing was uploaded"):
        settings, requests = open_requests(faults, region=region, project=project, image=image)
        faults = check_account(requests, settings, MODEL_SERVICE, image)
        faults += find_missing_files(requests.session, "artifact", [artifact] if artifact else [])
        check(faults)
        wanted = ModelUpload(
            model, version, image, artifact or "", predict_route, health_route, port
        )
        uploaded = ModelsApi(requests).upload(wanted, default=default)
        if uploaded is None:
            allowed = "a name that no version with other files or another image has"
            raise RequestError([Fault("version", repr(version), allowed, "choose another name")])
    if as_json:
        write_json(uploaded._asdict())
    else:
        typer.echo(uploaded.resource)


@app.command("models", cls=OptionCommand)
def list_models(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL[/VERSION]", help="Show the versions of this model, or this version."
        ),
    ] = None,
    region: RegionOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List models with their default versions, or the versions of one model."""
    from hyperplane.platforms.gcp.vertex_models import DEFAULT, ModelsApi

    faults: list[Fault] = []
    name, version = parse_version(model, faults) if model is not None else (None, None)
    _, requests = open_requests(faults, region=region, project=project)
    api = ModelsApi(requests)
    if name is None:
        versions = api.list_models()
    elif (found := api.find(name, version)) is None:
        raise no_model(name, version)
    else:
        versions = [found] if version else api.list_versions(name)
    if as_json:
        write_json([version._asdict() for version in versions])
        return
    if not versions:
        typer.echo(f"no models in {requests.session.location()}", err=True)
        return
    table = new_table(["model", "version", "names", "default", "image", "created"], [])
    for each in versions:
        names = ", ".join(name for name in each.aliases if name != DEFAULT)
        default = "yes" if DEFAULT in each.aliases else ""
        table.add_row(each.model, each.version, names, default, each.image, each.created)
    show(table)


@app.command("delete", cls=OptionCommand)
def delete_model(
    model: VersionArgument,
    version: Annotated[
        str | None,
        typer.Argument(metavar="VERSION", help="Delete only this version, as with MODEL/VERSION."),
    ] = None,
    region: RegionOption = None,
    project: ProjectOption = None,
) -> None:
    """Delete a model with all its versions, or one version that is not the default one.

    Vertex AI refuses it while a version is deployed. The files of the model are kept.
    """
    from hyperplane.platforms.gcp.vertex_models import ModelsApi

    faults: list[Fault] = []
    name, named = parse_version(model, faults)
    if version is not None:
        if named is not None:
            faults.append(Fault("version", repr(version), f"no second version beside {model}"))
        elif parse_version(f"{name}/{version}", []) != (name, version) and not faults:
            allowed = "the name or number of a version, such as v1"
            faults.append(Fault("version", repr(version), allowed))
        named = version
    _, requests = open_requests(faults, region=region, project=project)
    api = ModelsApi(requests)
    found = api.find(name, named)
    if found is None:
        raise no_model(name, named)
    api.delete(found, whole=named is None)
    typer.echo(f"deleted {found.resource if named else found.resource.partition('@')[0]}")


app.command(cls=OptionCommand)(vertex_endpoint.deploy)
app.command("endpoints", cls=OptionCommand)(vertex_endpoint.list_endpoints)
app.command("predict", cls=OptionCommand)(vertex_endpoint.predict)
app.command("undeploy", cls=OptionCommand)(vertex_endpoint.undeploy)
app.command("batch-predict", cls=OptionCommand)(vertex_batch.batch_predict)
app.command("describe", cls=OptionCommand)(vertex_batch.describe_job)
app.command("cancel", cls=OptionCommand)(vertex_batch.cancel_job)
