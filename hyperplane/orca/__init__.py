"""Orca's import path: ``from zoo.orca import ...`` changes to ``from hyperplane.orca``."""

from hyperplane.orca.context import OrcaContext, init_orca_context, stop_orca_context

__all__ = ["OrcaContext", "init_orca_context", "stop_orca_context"]
