"""Execution of a job's steps: commands, attempts, retries, resources and files."""
