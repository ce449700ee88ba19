"""``hyperplane vertex deploy|endpoints|predict|undeploy``: online prediction on Vertex AI."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hyperplane.cli.output import JsonOption, new_table, show, write_json
from hyperplane.cli.predict import read_instances
from hyperplane.cli.stop_signals import StopSignals
from hyperplane.cli.vertex_options import (
    DryRunOption,
    GpusOption,
    GpuTypeOption,
    MachineTypeOption,
    ProjectOption,
    RegionOption,
    VersionArgument,
    check_account,
    choose_machine,
    describe_cost,
    find_endpoint_faults,
    find_version,
    open_requests,
    parse_version,
)
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import stating_outcome

EndpointArgument = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Id of the endpoint.")]
_MOST_REPLICAS = 1000


def deploy(
    model: VersionArgument,
    endpoint: EndpointArgument,
    min_replicas: Annotated[int, typer.Option(help="Machines that there always are.")] = 1,
    max_replicas: Annotated[
        int | None, typer.Option(help="Largest number of machines; that of --min-replicas if none.")
    ] = None,
    machine_type: MachineTypeOption = None,
    gpus: GpusOption = 0,
    gpu_type: GpuTypeOption = None,
    region: RegionOption = None,
    project: ProjectOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Deploy a version of a model to an endpoint, which is created if it is missing.

    Another version is removed once this one answers. If the deployment fails or is interrupted with
    Ctrl-C, it is removed. Repeated with the same options, nothing changes.
    """
    from hyperplane.platforms.gcp.vertex_endpoints import (
        ENDPOINT_ID,
        ENDPOINT_SERVICE,
        Deployment,
        EndpointsApi,
    )

    faults: list[Fault] = []
    wanted = parse_version(model, faults)
    most = min_replicas if max_replicas is None else max_replicas
    if not ENDPOINT_ID.fullmatch(endpoint):
        allowed = "1 to 63 of a-z, 0-9 and -, first a letter, last a letter or digit"
        faults.append(Fault("endpoint", repr(endpoint), allowed))
    if not 1 <= min_replicas <= _MOST_REPLICAS:
        faults.append(Fault("min_replicas", str(min_replicas), f"from 1 to {_MOST_REPLICAS}"))
    elif not min_replicas <= most <= _MOST_REPLICAS:
        allowed = f"from {min_replicas} to {_MOST_REPLICAS}"
        faults.append(Fault("max_replicas", str(most), allowed))
    with stating_outcome("nothing was deployed"):
        settings, requests = open_requests(
            faults, region=region, project=project, machine_type=machine_type, gpu_type=gpu_type
        )
        machine = choose_machine(settings, gpus, gpu_type, faults)
        check(faults)
        faults = check_account(requests, settings, ENDPOINT_SERVICE)
        version = find_version(requests, *wanted, faults)
        check(faults)
        assert version is not None  # noqa: S101 - otherwise check has raised
        deployment = Deployment(
            version.resource, machine, min_replicas, most, settings.service_account
        )
        machines = f"{min_replicas} to {most}" if most > min_replicas else str(min_replicas)
        typer.echo(describe_cost(settings, machine, machines), err=True)
        if dry_run:
            write_json({"endpoint": endpoint, "body": deployment.build_request()})
            return
        with StopSignals() as signals:
            is_new = EndpointsApi(requests).deploy(endpoint, deployment, signals.stop_requested)
    name = f"{requests.session.location()}/endpoints/{endpoint}"
    if as_json:
        write_json({"endpoint": name, "model": version.resource, "is_new": is_new})
    else:
        typer.echo(f"{version.resource} is deployed to {name}" + " already" * (not is_new))


def list_endpoints(
    region: RegionOption = None, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """List endpoints, and the models that are deployed to them."""
    from hyperplane.platforms.gcp.vertex_endpoints import EndpointsApi

    _, requests = open_requests([], region=region, project=project)
    rows = [
        {
            "endpoint": str(found["name"]).rpartition("/")[2],
            "model": str(deployed.get("model", "")).rpartition("/")[2].partition("@")[0],
            "version": str(deployed.get("modelVersionId", "")),
            "machine_type": str(resources.get("machineSpec", {}).get("machineType", "")),
            "min_replicas": resources.get("minReplicaCount", 0),
            "max_replicas": resources.get("maxReplicaCount", 0),
        }
        for found in EndpointsApi(requests).list_endpoints()
        for deployed in found.get("deployedModels", [{}])
        for resources in [deployed.get("dedicatedResources", {})]
    ]
    if as_json:
        write_json(rows)
        return
    if not rows:
        typer.echo(f"no endpoints in {requests.session.location()}", err=True)
        return
    table = new_table(["endpoint", "model", "version", "machine"], ["least", "most"])
    for row in rows:
        table.add_row(*map(str, row.values()))
    show(table)


def predict(
    endpoint: EndpointArgument,
    json_instances: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File with one JSON instance per line, or -."),
    ] = None,
    json_request: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help='File with a request, {"instances": [...]}, or -; the response is printed.',
        ),
    ] = None,
    text_instances: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with one text per line, or -.")
    ] = None,
    region: RegionOption = None,
    project: ProjectOption = None,
) -> None:
    """Print the predictions of an endpoint for JSON instances, one per line."""
    from hyperplane.platforms.gcp.vertex_endpoints import MAX_BYTES, EndpointsApi

    files = {
        "--json-instances": json_instances,
        "--json-request": json_request,
        "--text-instances": text_instances,
    }
    given = {option: file for option, file in files.items() if file is not None}
    with stating_outcome("nothing was predicted"):
        if len(given) != 1:
            allowed = f"exactly one of {', '.join(files)}"
            raise RequestError([Fault("instances", ", ".join(given) or "nothing", allowed)])
        [(option, file)] = given.items()
        instances = []
        faults = find_endpoint_faults(endpoint)
        for number, line in enumerate(read_instances(option, file, faults), 1):
            try:
                instances.append(json.loads(line))
                json.dumps(instances[-1], allow_nan=False)  # Python reads NaN, Vertex AI does not
            except ValueError as error:
                faults.append(Fault(option, f"line {number}", f"JSON ({error})"))
        if not instances and not faults:
            faults.append(Fault(option, "no instances", "at least one instance"))
        size = len(json.dumps({"instances": instances}))
        if size > MAX_BYTES:
            advice = "give fewer instances, or use hyperplane vertex batch-predict"
            faults.append(Fault(option, f"{size} bytes", f"at most {MAX_BYTES} bytes", advice))
        _, requests = open_requests(faults, region=region, project=project)
        api = EndpointsApi(requests)
        if api.read(endpoint) is None:
            raise _no_endpoint(endpoint)
        predictions = api.predict(endpoint, instances)
    if option == "--json-request":
        write_json({"predictions": predictions})
        return
    for prediction in predictions:
        typer.echo(json.dumps(prediction))


def undeploy(
    endpoint: EndpointArgument, region: RegionOption = None, project: ProjectOption = None
) -> None:
    """Remove all models of an endpoint, also unfinished deployments, and delete the endpoint."""
    from hyperplane.platforms.gcp.vertex_endpoints import EndpointsApi

    faults = find_endpoint_faults(endpoint)
    _, requests = open_requests(faults, region=region, project=project)
    api = EndpointsApi(requests)
    if api.read(endpoint) is None:
        raise _no_endpoint(endpoint)
    api.remove(endpoint)
    typer.echo(f"deleted {requests.session.location()}/endpoints/{endpoint}")


def _no_endpoint(endpoint: str) -> RequestError:
    advice = "hyperplane vertex endpoints lists them"
    return RequestError([Fault("endpoint", repr(endpoint), "an endpoint in the region", advice)])
