"""Compare the package versions of this process with those of a cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

from distributed import Client

from hyperplane.core.errors import StartFailed
from hyperplane.spec.settings import RemoteSettings

#: Packages whose versions must agree, so that processes can read the tasks and messages of others.
MUST_AGREE = ("python", "dask", "distributed", "cloudpickle", "msgpack", "numpy", "pandas")
#: Packages of ``MUST_AGREE`` whose versions need to agree in the first two numbers only.
MAJOR_MINOR_ONLY = ("python", "numpy", "pandas")

logger = logging.getLogger(__name__)


def check(client: Client, engine: str, settings: RemoteSettings) -> None:
    """Compare the versions of this process with those of the scheduler and of every worker.

    Raises
    ------
    StartFailed
        If they differ and ``settings.versions`` is "refuse"; otherwise a warning is logged.
    """
    lines = differences(cast(dict[str, Any], client.get_versions()))
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
    lines = []
    for name in MUST_AGREE:
        others: dict[str | None, list[str]] = {}
        for place, reported in there.items():
            if reported.get(name) != here.get(name):
                others.setdefault(reported.get(name), []).append(place)
        if others:
            texts = [
                f"{version or 'none'} on {_join_places(places)}"
                for version, places in others.items()
            ]
            lines.append(f"{name} {here.get(name) or 'none'} here, {', '.join(texts)}")
    return lines


def _package_versions(reported: Mapping[str, Any]) -> dict[str, str | None]:
    """Return versions by package, with the first two numbers only for ``MAJOR_MINOR_ONLY``."""
    versions = dict(reported["packages"])
    for name in MAJOR_MINOR_ONLY:
        if versions.get(name):
            versions[name] = ".".join(str(versions[name]).split(".")[:2])
    return versions


def _join_places(places: list[str]) -> str:
    if len(places) <= 2:
        return " and ".join(places)
    return f"{', '.join(places[:2])} and {len(places) - 2} more"
