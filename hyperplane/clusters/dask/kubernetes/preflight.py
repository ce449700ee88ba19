"""Checks before a cluster starts on Kubernetes: image, access, operator and quotas."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from hyperplane.clusters.dask.kubernetes.render import API_VERSION, build_manifest
from hyperplane.clusters.dask.kubernetes.resource import DaskClusterResource
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.missing_modules import check_unknown_modules
from hyperplane.guard.preflight.ports import check_dashboard_port
from hyperplane.guard.preflight.report import PreflightFinding, State
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.platforms.kubernetes.api import KubernetesApi
from hyperplane.platforms.kubernetes.errors import (
    FORBIDDEN,
    KubernetesError,
    ObjectNotFound,
    RequestRefused,
)
from hyperplane.platforms.kubernetes.kubeconfig import uses_port_forward
from hyperplane.platforms.kubernetes.quotas import find_shortages, sum_resources
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import KubernetesSettings

#: The Python version in the tag of an image, such as ``2026.8.0-py3.11``.
_PYTHON = re.compile(r"py(?:thon)?-?3[.-]?(\d{1,2})\b", re.IGNORECASE)
_IMAGE = "hyperplane.engines.kubernetes.image"


def list_checks(plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
    """Return the checks of a plan."""
    settings = cast(KubernetesSettings, plan.settings)
    where = f"image {settings.image}"
    modules = partial(check_unknown_modules, request.program, where, request.needed, request.sync)
    checks = [
        Check("image", lambda _: check_image(str(settings.image), settings.image_pull_policy)),
        Check("modules", lambda _: modules()),
        Check("namespace", partial(_check_namespace, plan)),
    ]
    if uses_port_forward(settings.port_forward):
        port = plan.dashboard_port
        checks.append(Check("dashboard port", lambda _: check_dashboard_port(port, forwarded=True)))
    return checks


def check_image(image: str, pull_policy: str | None) -> Iterator[PreflightFinding]:
    """Yield findings on the name of an image, which is all that is known of it here."""
    name = image.rpartition("/")[2]
    tag, digest = name.partition("@")[0].partition(":")[2], name.partition("@")[2]
    unpinned = not digest and tag in ("", "latest")
    if unpinned:
        text = f"{image} has no fixed tag: nodes may have different versions of it"
        advice = f"set {_IMAGE} to a tag that never changes, or a digest"
        if pull_policy in ("IfNotPresent", "Never"):
            text += f", which image_pull_policy {pull_policy} keeps"
        yield PreflightFinding("image", "warning", text, advice)
    found = _PYTHON.search(tag)
    mine = platform.python_version_tuple()[1]
    if found and found[1] != mine:
        text = f"the tag of {image} is for Python 3.{found[1]}, but this is Python 3.{mine}"
        yield PreflightFinding("image", "warning", text, "use an image of the same version")
    text = f"the packages in {image} are compared when its first pods run"
    yield PreflightFinding("versions", "unchecked", text)


def _check_namespace(plan: ClusterPlan, deadline: CheckDeadline) -> list[PreflightFinding]:
    return deadline.run(_ask_namespace(plan, deadline.remaining))


async def _ask_namespace(plan: ClusterPlan, seconds: float) -> list[PreflightFinding]:
    settings = cast(KubernetesSettings, plan.settings)
    api = KubernetesApi(settings.namespace, login_seconds=seconds, request_seconds=seconds)
    try:
        await api.connect()
        return [await _check_operator(api), *await _check_quotas(api, plan)]
    except KubernetesError as error:
        silent = isinstance(error.__cause__, TimeoutError)
        busy = isinstance(error, RequestRefused) and error.is_retryable()
        state: State = "unchecked" if silent or busy else "fault"
        return [PreflightFinding("namespace", state, str(error))]
    finally:
        await api.close()


async def _check_operator(api: Any) -> PreflightFinding:
    """Check that the operator is installed, and that this user may use its resources."""
    try:
        await api.list(DaskClusterResource.plural, API_VERSION)
    except ObjectNotFound as error:
        text = (
            f"namespace {api.namespace!r} does not exist, or the operator of "
            f"{DaskClusterResource.operator} is not installed: {error}"
        )
        return PreflightFinding("namespace", "fault", text, DaskClusterResource.install)
    except RequestRefused as error:
        if error.status != FORBIDDEN:
            raise
        return PreflightFinding("namespace", "warning", str(error))
    return PreflightFinding("namespace", "ok", f"{api.namespace!r} can be used")


async def _check_quotas(api: Any, plan: ClusterPlan) -> list[PreflightFinding]:
    try:
        quotas = await api.list("resourcequotas")
    except RequestRefused as error:
        return [PreflightFinding("quota", "unchecked", str(error))]
    spec = build_manifest(plan)["spec"]
    needed = sum_resources(
        [(1, spec["scheduler"]["spec"]), (spec["worker"]["replicas"], spec["worker"]["spec"])]
    )
    found = []
    for short in find_shortages(quotas, needed):
        text = (
            f"the pods need {short.resource} {short.needed}, but quota {short.quota} permits "
            f"{short.hard}, of which {short.used} is in use"
        )
        advice = "request less, or use another namespace"
        state = "fault" if short.never else "warning"
        found.append(PreflightFinding("quota", cast(Any, state), text, advice))
    return found or [PreflightFinding("quota", "ok", f"the quotas of {api.namespace!r} suffice")]
