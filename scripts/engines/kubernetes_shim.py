"""For the test cluster only: make kr8s work with a Kubernetes older than it supports.

Before 1.27 the API server leaves ``singularName`` empty, and kr8s then does not find its own
classes for pods and services. Importing this module sets it.
"""

from __future__ import annotations

import functools
from typing import Any

from kr8s._api import Api

_asked = Api.async_api_resources_uncached


@functools.wraps(_asked)
async def _filled(self: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await _asked(self)
    for each in found:
        each["singularName"] = each.get("singularName") or each["kind"].lower()
    return found


Api.async_api_resources_uncached = _filled  # type: ignore[method-assign]
