"""Clusters: a plan, the engine that starts it, and the records of running clusters."""
