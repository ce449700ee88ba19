"""Spark clusters: the framework Spark on the platforms."""
