"""Kubernetes: its API, pods and their status."""
