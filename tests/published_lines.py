"""The lines of a start that the platform documents, which published programs show."""

from __future__ import annotations

BRAND = "👉 Hyperplane:"
SELECTING = [
    f"{BRAND} selecting worker node pool",
    f"{BRAND} selecting scheduler node pool",
]
#: Of engines with pods.
PODS = [
    "Creating scheduler pod on cluster. This may take some time.",
    f"{BRAND} spinning up a dask cluster with a scheduler as a standalone container.",
]
LATER = f"{BRAND} In a few minutes you'll be able to access the dashboard at"
NOW = f"{BRAND} you can access your dask dashboard at"
LOGS = f"{BRAND} to get logs from all workers, do `cluster.get_logs()`"
