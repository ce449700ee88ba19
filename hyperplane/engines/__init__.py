"""Former names of modules that running clusters of version 0.1.0 name to new worker processes.

A cluster that was started before an upgrade of the package may add workers after it.
"""

import importlib
import sys

for _old, _new in {
    "dashboard_path": "dashboard_path",
    "dask_notices": "log_filters",
    "lazy_dashboard": "lazy_dashboard",
    "parent_death": "parent_death",
    "worker_memory": "worker_memory",
}.items():
    sys.modules[f"{__name__}.{_old}"] = importlib.import_module(f"hyperplane.clusters.dask.{_new}")
