"""Requests for clusters in pods of any framework: their faults, and the nodes of workers."""

from __future__ import annotations

from hyperplane.core.errors import Fault, RequestError
from hyperplane.platforms.kubernetes.pods import select_nodes
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings.kubernetes import PodSettings, millicores


def find_pod_faults(
    request: ClusterRequest,
    settings: PodSettings,
    longest: int,
    image: str = "an image with the Python version of this process",
) -> list[Fault]:
    """Return faults for a missing image and for arguments that no pod can satisfy.

    Parameters
    ----------
    request : ClusterRequest
        The request.
    settings : PodSettings
        Settings of the engine.
    longest : int
        Maximum characters of the name of a cluster.
    image : str
        What the image must be, for the message.
    """
    faults = []
    if settings.image is None:
        advice = (
            'set it, or give engine_options={"image": "..."} '
            "(on the command line --engine-options image=...)"
        )
        faults.append(Fault(settings.locate("image"), "nothing", image, advice))
    if request.name and len(request.name) > longest:
        faults.append(Fault("name", repr(request.name), f"at most {longest} characters"))
    return faults + _faults_of_arguments(request)


def select_worker_nodes(plan: ClusterPlan, settings: PodSettings) -> dict[str, str]:
    """Return the node selector of the request, else that of the settings for the plan's pool."""
    from hyperplane.platforms.kubernetes.pod_template import parse_selector

    if plan.request.node_selector is not None:
        return parse_selector(plan.request.node_selector)
    name, alias = (plan.pool.name, plan.pool.alias) if plan.pool else ("", "")
    return select_nodes(settings, name, alias)


def _faults_of_arguments(request: ClusterRequest) -> list[Fault]:
    from hyperplane.platforms.kubernetes.pod_template import parse_selector, read_template

    faults: list[Fault] = []
    try:
        parse_selector(request.node_selector or {})
    except ValueError as error:
        faults.append(Fault("node_selector", repr(request.node_selector), str(error)))
    try:
        millicores(request.scheduler_cpu if request.scheduler_cpu is not None else 1)
    except ValueError as error:
        faults.append(Fault("scheduler_cpu", repr(request.scheduler_cpu), str(error)))
    try:
        if request.worker_spec_yaml:
            read_template(request.worker_spec_yaml)
    except RequestError as error:
        faults += error.faults
    return faults
