"""Private names of distributed's clients; loads distributed."""

from __future__ import annotations

from distributed.client import _current_client as current_client
from distributed.client import _global_clients as global_clients

__all__ = ["current_client", "global_clients"]
