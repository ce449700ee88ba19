"""Pipelines and their steps, read and validated before anything runs."""
