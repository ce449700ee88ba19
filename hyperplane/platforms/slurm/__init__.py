"""Slurm: its commands and the state of batch jobs."""
