"""Make kr8s work with a Kubernetes that is older than it supports, for the test cluster only.

Before 1.27 the API server leaves ``singularName`` empty, and kr8s then does not find its own
classes for pods and services. Importing this module sets it; with a newer API server, nothing
changes.
"""

from __future__ import annotations

import functools
from typing import Any

from kr8s._api import Api

_original = Api.async_api_resources_uncached


@functools.wraps(_original)
async def _fill_singular_names(self: Api) -> list[dict[str, Any]]:
    resources: list[dict[str, Any]] = await _original(self)
    for resource in resources:
        resource["singularName"] = resource.get("singularName") or resource["kind"].lower()
    return resources


Api.async_api_resources_uncached = _fill_singular_names  # type: ignore[method-assign]
