"""Compare the package versions of this process with those of a cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from distributed import Client

from hyperplane.core.dask_internals.clients import get_versions
from hyperplane.core.errors import StartFailed
from hyperplane.guard.preflight.versions import MUST_AGREE, describe_differences
from hyperplane.spec.settings import RemoteSettings

logger = logging.getLogger(__name__)


def check(client: Client, engine: str, settings: RemoteSettings, seconds: float) -> None:
    """Compare the versions of this process with those of the scheduler and of every worker.

    Raises
    ------
    StartFailed
        If they differ and ``settings.versions`` is "refuse", otherwise a warning is logged; and if
        the scheduler or a worker has not answered within ``seconds``.
    """
    try:
        lines = differences(get_versions(client, seconds))
    except TimeoutError as error:
        address = getattr(client.scheduler, "address", "")
        raise StartFailed(
            engine,
            f"the scheduler {address}, or a worker that it asks, did not answer within "
            f"{seconds:.0f} s when it was asked for the versions of packages; everything was "
            "closed again. Its process may be stopped, or its machine overloaded",
        ) from error
    if not lines:
        return
    message = (
        "package versions differ between this process and the cluster: "
        + "; ".join(lines)
        + ". Install the same versions in both places"
    )
    if settings.versions == "refuse":
        advice = f", or set hyperplane.engines.{engine}.versions to warn"
        raise StartFailed(engine, message + advice + "; everything was closed again")
    logger.warning("engine %s: %s", engine, message)


def differences(versions: Mapping[str, Any]) -> list[str]:
    """Return one line for each package that differs in the result of ``Client.get_versions``."""
    here = _package_versions(versions["client"])
    there = {"the scheduler": _package_versions(versions["scheduler"])}
    there.update(
        {address: _package_versions(reported) for address, reported in versions["workers"].items()}
    )
    lines = (describe_differences(name, here, there) for name in MUST_AGREE)
    return list(filter(None, lines))


def _package_versions(reported: Mapping[str, Any]) -> Mapping[str, str | None]:
    versions: Mapping[str, str | None] = reported["packages"]
    return versions
