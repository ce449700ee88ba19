"""Options and requests that the commands of ``hyperplane vertex`` share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hyperplane import config
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.optional import need
from hyperplane.platforms.gcp.ai_platform import BASIC_MACHINE
from hyperplane.platforms.gcp.machine_types import (
    PRICE_DATE,
    PRICE_SOURCE,
    VertexMachine,
    attach_gpus,
    find_machine,
    machine_price,
)
from hyperplane.spec.settings import VertexSettings
from hyperplane.spec.settings.base import replace_settings

if TYPE_CHECKING:
    from hyperplane.platforms.gcp.service_check import CheckedService
    from hyperplane.platforms.gcp.vertex_models import VertexModelVersion
    from hyperplane.platforms.gcp.vertex_requests import VertexRequests

RegionOption = Annotated[str | None, typer.Option(help="Region; that of the settings if none.")]
ProjectOption = Annotated[
    str | None, typer.Option(help="Project; that of the settings or credentials if none.")
]
VersionArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL[/VERSION]", help="A model, or a version by its name or number."),
]
MachineTypeOption = Annotated[
    str | None, typer.Option(help=f"Type of the machines; {BASIC_MACHINE} if none is set.")
]
GpusOption = Annotated[int, typer.Option(help="GPUs of each machine.")]
GpuTypeOption = Annotated[str | None, typer.Option(help="Their type, such as NVIDIA_TESLA_T4.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check, print request and cost, and change nothing.")
]
_SECTION = "vertex"


def open_requests(
    faults: Sequence[Fault], **options: object
) -> tuple[VertexSettings, VertexRequests]:
    """Return the settings with options, and the requests; raise RequestError with all faults."""
    settings = read_settings(faults, **options)
    need("googleapiclient", "gcp")
    from hyperplane.platforms.gcp.session import GcpSession
    from hyperplane.platforms.gcp.vertex_requests import VertexRequests

    return settings, VertexRequests(GcpSession(settings.project, settings.region, os.environ))


def read_settings(faults: Sequence[Fault], **options: object) -> VertexSettings:
    """Return the settings with options that are given; raise RequestError with all faults."""
    given = {name: value for name, value in options.items() if value is not None}
    found, settings = list(faults), config.runners().vertex
    try:
        settings = replace_settings(settings, given, _SECTION)
    except RequestError as error:
        prefix = f"{_SECTION}."
        found += [replace(each, where=each.where.removeprefix(prefix)) for each in error.faults]
    else:
        if settings.region is None:
            allowed = "the name of a region, such as europe-west4"
            advice = "or set hyperplane.runners.vertex.region"
            found.append(Fault("region", "nothing", allowed, advice))
    check(found)
    return settings


def check_account(
    requests: VertexRequests,
    settings: VertexSettings,
    service: CheckedService,
    image: str | None = None,
) -> list[Fault]:
    """Return all faults of region, permissions, image and service account.

    Raises RequestError if there are no valid credentials, because nothing else can be checked then.
    """
    from hyperplane.platforms.gcp.service_check import check_service

    # Folder and image of the settings are those of steps.
    changed = settings.model_copy(update={"staging": None, "image": image})
    faults = check_service(requests.session, changed, service)
    check(faults if any(fault.where == "credentials" for fault in faults) else ())
    return faults


def parse_version(text: str, faults: list[Fault]) -> tuple[str, str | None]:
    """Return model and version of an argument; add a fault if it is not of the form of one.

    Examples
    --------
    >>> parse_version("flights/v2", []), parse_version("flights@2", [])
    (('flights', 'v2'), ('flights', '2'))
    >>> parse_version("flights", [])
    ('flights', None)
    """
    from hyperplane.platforms.gcp.vertex_models import REFERENCE

    match = REFERENCE.fullmatch(text)
    if match is None:
        allowed = "the id of a model, such as flights, or a version of it, such as flights/v1"
        faults.append(Fault("model", repr(text), allowed))
        return text, None
    return match["model"], match["version"]


def find_endpoint_faults(endpoint: str) -> list[Fault]:
    """Return the fault of a text that cannot be the id of an endpoint.

    Vertex AI numbers endpoints that were created without an id.
    """
    from hyperplane.platforms.gcp.vertex_endpoints import ENDPOINT_ID

    if ENDPOINT_ID.fullmatch(endpoint) or (endpoint.isascii() and endpoint.isdigit()):
        return []
    return [Fault("endpoint", repr(endpoint), "the id of an endpoint, such as flights")]


def find_version(
    requests: VertexRequests, model: str, version: str | None, faults: list[Fault]
) -> VertexModelVersion | None:
    """Return a version, or the default one; None with a fault if there is none."""
    from hyperplane.platforms.gcp.errors import GcpError
    from hyperplane.platforms.gcp.vertex_models import ModelsApi

    try:
        found = ModelsApi(requests).find(model, version)
    except GcpError as error:
        faults.append(Fault("model", repr(model), f"a model that can be read; {error}"))
        return None
    if found is None:
        faults += no_model(model, version).faults
    return found


def no_model(model: str, version: str | None = None) -> RequestError:
    """Return the error of a model, or a version of it, that Vertex AI does not have."""
    asked = f"{model}/{version}" if version else model
    advice = "hyperplane vertex models lists them"
    return RequestError([Fault("model", repr(asked), "a model in the region", advice)])


def choose_machine(
    settings: VertexSettings, gpus: int, gpu_type: str | None, faults: list[Fault]
) -> VertexMachine:
    """Return the machine of the settings with GPUs; add a fault if it cannot have them.

    ``gpu_type`` is that of an option, which needs GPUs; that of the settings does not. Vertex AI
    has more types for predictions than for training; those that are not in the table are passed on.
    """
    machine = _attach_gpus(settings, gpus, faults)
    if gpu_type is not None and gpus == 0 == machine.gpus:
        faults.append(Fault("gpus", "0", "at least 1 with --gpu-type"))
    return machine


def _attach_gpus(settings: VertexSettings, gpus: int, faults: list[Fault]) -> VertexMachine:
    name = settings.machine_type or BASIC_MACHINE
    known = find_machine(name)
    if known is None:
        if gpus < 0:
            faults.append(Fault("gpus", str(gpus), "at least 0"))
        if gpus and settings.gpu_type is None:
            faults.append(Fault("gpu_type", "nothing", "the type of the GPUs"))
        return VertexMachine(name, 0, 0, gpus, settings.gpu_type or "" if gpus else "")
    machine = attach_gpus(known, gpus, settings.gpu_type)
    if gpus < 0 or machine is None:
        allowed = f"GPUs that {name} can have"
        faults.append(Fault("gpus", str(gpus), allowed, "give --gpu-type, or a machine of n1"))
        return known
    return machine


def describe_cost(settings: VertexSettings, machine: VertexMachine, machines: str) -> str:
    """Return the price of the machines, or that it is unknown, as a line of text.

    ``machines`` says how many there are.
    """
    price = machine_price(settings.region, machine)
    if not machine.cores or price is None:
        shown = f"{machine.describe()} in {settings.region}"
        return f"{machines} {machine.describe()}; cost unknown: no price of {shown}"
    source = f"price of {PRICE_DATE}, {PRICE_SOURCE}"
    return f"{machines} {machine.describe()}, {price:.4f} USD for an hour each ({source})"
