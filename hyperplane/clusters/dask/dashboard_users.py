"""Preload of worker processes: their pages refuse other users of the machine.

Distributed imports a preload when it creates a worker, before the HTTP server of the worker starts.
"""

from __future__ import annotations

from hyperplane.guard.same_user import check_dashboards

check_dashboards()
