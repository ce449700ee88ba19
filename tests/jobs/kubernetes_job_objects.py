"""Objects of jobs on the Kubernetes of the tests."""

from __future__ import annotations

import json
from typing import Any

from services_kubernetes import NAMESPACE, kubectl

#: Resources of a process that does little.
SMALL = {"cores": 0.1, "ram_gb": 0.1}
_OF_JOBS = ("-l", "hyperplane.dev/job")


def list_left() -> list[str]:
    """Return the names of all objects of jobs that exist."""
    kinds = "jobs,pods,secrets,services,configmaps"
    return kubectl("-n", NAMESPACE, "get", kinds, *_OF_JOBS, "-o", "name").split()


def job_objects(kind: str) -> list[dict[str, Any]]:
    """Return all objects of a kind that belong to jobs."""
    found = kubectl("-n", NAMESPACE, "get", kind, *_OF_JOBS, "-o", "json")
    items: list[dict[str, Any]] = json.loads(found)["items"]
    return items
