"""Kernels: what runs inside a task, by kind of table."""
