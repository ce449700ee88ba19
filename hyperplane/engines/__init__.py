"""Engines: each one starts the cluster of a finished plan."""
