"""Orca's module of the context."""

from hyperplane.orca.context import OrcaContext, init_orca_context, stop_orca_context

__all__ = ["OrcaContext", "init_orca_context", "stop_orca_context"]
